-- Its copies. There is no index by id: whoever asks says first how long it may take.
select seq, id, source, aggregate_type, aggregate_id, event_key, event_type, event_version, payload, payload_bytes,
    content_type, encoding, headers, tenant, format, occurred_at, created_at, erased_at, partition
from {outbox_waiting} where id = $1 order by seq limit 1;
