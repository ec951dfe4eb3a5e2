-- A relay that is not announced tells nothing.
update outbox_relay set hindrances = ?2 where owner = ?1;
