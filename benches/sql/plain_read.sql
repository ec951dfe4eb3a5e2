-- The page that a plain program would read: every column, by number.
select seq, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at
from outbox
where seq > ?1
order by seq limit ?2;
