-- A copy of an event that the outbox has forgotten. There is no index by id: this is the last
-- place to look.
select seq, id, source, aggregate_type, aggregate_id, event_key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at
from outbox_waiting where id = ?1 limit 1;
