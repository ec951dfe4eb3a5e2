-- Done by hand. A claim that has ended is taken over, so that its worker is refused; its payload's
-- hash stays. Without one the payload is not known: 32 zero bytes mean any.
with marked as (
    insert into {inbox} as i (source, event_id, handler, event_type, status, payload_hash, token,
        processed_at, attempts)
    values ($1, $2, $3, $4, 'processed', decode(repeat('00', 32), 'hex'), coalesce(
        (select max(t.token) + 1 from {inbox_tombstone} t
            where t.source = $1 and t.event_id = $2 and t.handler = $3), 0),
        clock_timestamp(), 0)
    on conflict (source, event_id, handler) do update set
        status = 'processed', token = i.token + 1, expires_at = null,
        processed_at = clock_timestamp()
    where i.status = 'claimed' and i.expires_at <= clock_timestamp()
    returning 1
),
noted as (
    insert into {outbox_audit} (who, why, what, subject)
    select $5, $6, 'inbox mark-processed', $7 from marked
)
select exists (select from marked);
