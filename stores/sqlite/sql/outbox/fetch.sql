-- One forward scan of the table itself; the caller stops stepping where its page is full.
select seq, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at
from outbox
where seq > ?1 and seq <= ?2
order by seq;
