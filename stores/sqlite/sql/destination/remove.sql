delete from outbox_destination where id = ?1;
