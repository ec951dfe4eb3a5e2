-- One conditional write: absent, or claimed by a lease that has ended. Tokens go on where those of a
-- forgotten row ended; a purge leaves nothing that says so, and what it took counted from a moment of the past, less often
-- than once in a microsecond: so they begin with this one. ?8: so many of the tries that were cut off were the asker's own, and did not end its process.
insert into inbox
    (source, event_id, handler, event_type, status, payload_hash, token, received_at, expires_at)
values (?1, ?2, ?3, ?4, 'claimed', ?5,
    max(?6 * 1000, 1 + coalesce(
        (select max(token) from inbox_tombstone where source = ?1 and event_id = ?2 and handler = ?3), 0)),
    ?6, ?7)
on conflict (source, event_id, handler) do update set
    token = token + 1, attempts = attempts + 1, failed = min(attempts, failed + ?8), expires_at = excluded.expires_at,
    payload_hash = iif(payload_hash = zeroblob(32), excluded.payload_hash, payload_hash)
where status = 'claimed' and expires_at <= ?6
    and (payload_hash = excluded.payload_hash or payload_hash = zeroblob(32) or excluded.payload_hash = zeroblob(32))
returning token, attempts, attempts - 1 - failed;
