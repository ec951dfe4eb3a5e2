vacuum {outbox_cursor};
