delete from outbox_waiting where destination = ?1;
