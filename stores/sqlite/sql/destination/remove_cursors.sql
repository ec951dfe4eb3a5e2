delete from outbox_cursor where destination = ?1;
