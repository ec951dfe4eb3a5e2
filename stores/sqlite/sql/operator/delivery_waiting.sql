select state, attempts, reason, detail, next_at from outbox_waiting
where destination = ?1 and seq = ?2;
