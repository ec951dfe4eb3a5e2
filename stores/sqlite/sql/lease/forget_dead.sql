delete from outbox_relay where owner = ?1;
