delete from outbox_range where destination = ?1;
