select count(*) from {outbox_cursor};
