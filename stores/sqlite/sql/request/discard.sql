-- The narrow row stays until its number is retired, so that a crash does not bring the event back.
update outbox_waiting
set state = 'discarded', holds_key = 0, payload = null, payload_bytes = null, headers = null,
    moved_at = ?3
where destination = ?1 and seq = ?2 and state in ('dead', 'disabled');
