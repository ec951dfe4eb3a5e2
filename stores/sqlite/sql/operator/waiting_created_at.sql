select created_at from outbox_waiting where destination = ?1 and seq = ?2;
