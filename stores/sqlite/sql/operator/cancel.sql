delete from outbox_scheduled where id = ?1;
