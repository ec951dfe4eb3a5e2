select seq, id, source, aggregate_type, aggregate_id, event_key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at, state, attempts, late, key_hash,
    reason, holds_key
from outbox_waiting
where destination = ?1 and seq = ?2;
