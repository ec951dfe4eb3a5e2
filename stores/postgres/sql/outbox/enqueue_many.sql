-- A row's number is drawn after the sort, so the numbers follow the order of the caller, and after the locks
-- on the keys where they are taken.
insert into {outbox}
    (vouched, partition, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, occurred_at)
select true, {outbox_partition_of}(coalesce(e.key, e.aggregate_type || '/' || e.aggregate_id)),
    e.id::uuid, e.source, e.aggregate_type, e.aggregate_id, e.key, e.event_type,
    e.event_version, e.payload, e.payload_bytes, e.content_type, e.encoding, e.headers::jsonb,
    e.tenant, timestamptz 'epoch' + e.occurred_at / 1000000 * interval '1 second'
        + e.occurred_at % 1000000 * interval '1 microsecond'
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[],
        $8::text[], $9::bytea[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[])
    with ordinality as e(id, source, aggregate_type, aggregate_id, key, event_type, event_version,
        payload, payload_bytes, content_type, encoding, headers, tenant, occurred_at, n)$held$
order by e.n;
