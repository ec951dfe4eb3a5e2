insert into {outbox_scheduled}
    (vouched, partition, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, occurred_at, due_at)
select true, {outbox_partition_of}(coalesce($5::text, $3::text || '/' || $4::text)),
    $1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int, $8::text,
    $9::bytea, $10::text, $11::text, $12::text::jsonb, $13::text,
    timestamptz 'epoch' + $14::bigint / 1000000 * interval '1 second'
        + $14::bigint % 1000000 * interval '1 microsecond',
    timestamptz 'epoch' + $15::bigint / 1000000 * interval '1 second'
        + $15::bigint % 1000000 * interval '1 microsecond';
