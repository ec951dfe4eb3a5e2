update outbox_waiting set next_at = ?3
where destination = ?1 and seq = ?2 and state in ('retrying', 'parked', 'held');
