update outbox_waiting
set state = 'dead', holds_key = ?3, attempts = ?4, reason = ?5, detail = ?6, moved_at = ?7
where destination = ?1 and seq = ?2 and state <> 'discarded';
