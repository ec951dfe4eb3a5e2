select min(next_at) from outbox_waiting
where destination = ?1 and partition = ?2 and state in ('retrying', 'held') and next_at > ?3;
