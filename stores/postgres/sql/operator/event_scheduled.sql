select seq, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload, payload_bytes,
    content_type, encoding, headers, tenant, format, occurred_at, created_at, erased_at, partition, due_at
from {outbox_scheduled} where id = $1;
