-- A relay that owns nothing any more is no longer announced.
delete from outbox_relay
where owner = ?1 and not exists (select 1 from outbox_lease where owner = ?1);
