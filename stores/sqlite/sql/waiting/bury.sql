-- What is late on purpose never holds its key.
update outbox_waiting
set state = 'dead', holds_key = case late when 1 then 0 else ?3 end, attempts = ?4, reason = ?5,
    detail = ?6, moved_at = ?7
where destination = ?1 and seq = ?2 and state <> 'discarded';
