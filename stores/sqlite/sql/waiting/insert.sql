-- Copies an event behind its key. What is not dead is parked if an earlier event holds the key,
-- whatever was asked. One that is already there, in any state, is left as it is.
insert into outbox_waiting
    (destination, partition, seq, key, key_hash, state, holds_key, next_at, attempts, reason,
        detail, moved_at, endpoint, id, source, aggregate_type, aggregate_id, event_key, event_type,
        event_version, payload, payload_bytes, content_type, encoding, headers, tenant, format,
        occurred_at, created_at, erased_at)
select ?1, ?2, o.seq, coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id), ?4,
    case
        when ?5 <> 'dead' and exists (
            select 1 from outbox_waiting earlier
            where earlier.destination = ?1 and earlier.partition = ?2
                and earlier.key = coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id)
                and earlier.holds_key = 1 and earlier.state <> 'discarded'
                and earlier.seq < o.seq)
        then 'parked' else ?5
    end,
    ?6, ?7, ?8, ?9, ?10, ?11, ?12, o.id, o.source, o.aggregate_type, o.aggregate_id, o.key,
    o.event_type, o.event_version, o.payload, o.payload_bytes, o.content_type, o.encoding,
    o.headers, o.tenant, o.format, o.occurred_at, o.created_at, o.erased_at
from outbox o
where o.seq = ?3
on conflict (destination, seq) do nothing;
