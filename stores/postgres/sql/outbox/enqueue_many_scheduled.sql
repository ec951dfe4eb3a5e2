-- Where some of the events, or all, are for later.
with e as materialized (
    select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
            $7::int[], $8::text[], $9::bytea[], $10::text[], $11::text[], $12::text[], $13::text[],
            $14::bigint[], $15::bigint[])
        with ordinality as e(id, source, aggregate_type, aggregate_id, key, event_type,
            event_version, payload, payload_bytes, content_type, encoding, headers, tenant,
            occurred_at, due_at, n)
), later as (
    insert into {outbox_scheduled}
        (vouched, partition, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
            payload_bytes, content_type, encoding, headers, tenant, occurred_at, due_at)
    select true, {outbox_partition_of}(coalesce(e.key, e.aggregate_type || '/' || e.aggregate_id)),
        e.id::uuid, e.source, e.aggregate_type, e.aggregate_id, e.key, e.event_type,
        e.event_version, e.payload, e.payload_bytes, e.content_type, e.encoding, e.headers::jsonb,
        e.tenant, timestamptz 'epoch' + e.occurred_at / 1000000 * interval '1 second'
        + e.occurred_at % 1000000 * interval '1 microsecond',
        timestamptz 'epoch' + e.due_at / 1000000 * interval '1 second'
        + e.due_at % 1000000 * interval '1 microsecond'
    from e where e.due_at is not null order by e.n
)
insert into {outbox}
    (vouched, partition, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, occurred_at)
select true, {outbox_partition_of}(coalesce(e.key, e.aggregate_type || '/' || e.aggregate_id)),
    e.id::uuid, e.source, e.aggregate_type, e.aggregate_id, e.key, e.event_type,
    e.event_version, e.payload, e.payload_bytes, e.content_type, e.encoding, e.headers::jsonb,
    e.tenant, timestamptz 'epoch' + e.occurred_at / 1000000 * interval '1 second'
        + e.occurred_at % 1000000 * interval '1 microsecond'
from e$held$ where e.due_at is null order by e.n;
