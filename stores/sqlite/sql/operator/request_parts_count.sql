select count(*) from outbox_cursor where destination = ?1;
