delete from outbox_relay where expires_at <= ?1;
