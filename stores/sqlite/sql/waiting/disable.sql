-- Its endpoint is disabled: it keeps its key, and is not tried.
update outbox_waiting
set state = 'disabled', endpoint = ?3, reason = ?4, detail = ?5, moved_at = ?6
where destination = ?1 and seq = ?2 and state in ('retrying', 'parked', 'held');
