select seq, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at, erased_at
from {outbox} where partition = $1 and seq > $2 order by seq limit $3;
