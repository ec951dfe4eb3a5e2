update outbox_destination set id = ?2, definition = ?3 where id = ?1;
