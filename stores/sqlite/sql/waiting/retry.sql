update outbox_waiting
set state = ?8, next_at = ?3, attempts = ?4, reason = ?5, detail = ?6, moved_at = ?7
where destination = ?1 and seq = ?2 and state in ('retrying', 'parked', 'held');
