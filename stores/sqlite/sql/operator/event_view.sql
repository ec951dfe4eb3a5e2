select seq, id, event_type, aggregate_type,
    coalesce(key, aggregate_type || '/' || aggregate_id), tenant, created_at,
    coalesce(octet_length(payload), octet_length(payload_bytes), 0), erased_at is not null
from outbox where seq = ?1;
