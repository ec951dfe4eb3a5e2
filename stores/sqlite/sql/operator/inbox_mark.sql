-- Done by hand. A claim that has ended is taken over, so that its worker is refused; its payload's
-- hash stays. Without one the payload is not known: 32 zero bytes mean any.
insert into inbox
    (source, event_id, handler, event_type, status, payload_hash, token, received_at, processed_at,
        attempts)
values (?1, ?2, ?3, ?4, 'processed', zeroblob(32), 0, ?5, ?5, 0)
on conflict (source, event_id, handler) do update set
    status = 'processed', token = token + 1, expires_at = null, processed_at = excluded.processed_at;
