-- An id that stands in the outbox already is the same event, enqueued twice: it is not entered
-- again.
insert into outbox
    (id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
        erased_at)
select id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
    payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at
from outbox_scheduled
where due_ms <= ?1
order by due_ms, seq limit ?2
on conflict (id) do nothing;
