select 1 from outbox_destination where id = ?1;
