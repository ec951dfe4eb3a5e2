-- A head and what is parked directly behind it; the caller stops at the first that is not parked.
select seq, id, source, aggregate_type, aggregate_id, event_key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at, state, attempts, late, key_hash,
    reason
from outbox_waiting
where destination = ?1 and partition = ?2 and key = ?3 and seq >= ?4
    and holds_key = 1 and state <> 'discarded'
order by seq;
