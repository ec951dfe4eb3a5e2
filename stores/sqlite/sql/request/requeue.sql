-- A copy that is late on purpose: it holds no key and waits for nobody. One that waits already is
-- left as it is, unless an operator had let it go.
insert into outbox_waiting
    (destination, partition, seq, key, key_hash, state, holds_key, late, next_at, attempts, reason,
        detail, moved_at, endpoint, id, source, aggregate_type, aggregate_id, event_key, event_type,
        event_version, payload, payload_bytes, content_type, encoding, headers, tenant, format,
        occurred_at, created_at, erased_at)
select ?1, ?2, o.seq, coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id), ?4, 'retrying', 0,
    1, ?5, 0, 'requeued', '', ?5, null, o.id, o.source, o.aggregate_type, o.aggregate_id, o.key,
    o.event_type, o.event_version, o.payload, o.payload_bytes, o.content_type, o.encoding,
    o.headers, o.tenant, o.format, o.occurred_at, o.created_at, o.erased_at
from outbox o
where o.seq = ?3
on conflict (destination, seq) do update set
    state = 'retrying', holds_key = 0, late = 1, next_at = ?5, attempts = 0, reason = 'requeued',
    detail = '', moved_at = ?5, endpoint = null, payload = excluded.payload,
    payload_bytes = excluded.payload_bytes, headers = excluded.headers
where state = 'discarded';
