-- A time in two parts, since an interval is multiplied as a float, which is exact for no more than 285 years in microseconds.
-- seq and created_at are the database's, the partition is the key's. The row is vouched for, since it was checked.
-- The last line takes the lock on the key, or is empty.
insert into {outbox}
    (vouched, partition, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, occurred_at)
select true, {outbox_partition_of}(coalesce($5::text, $3::text || '/' || $4::text)),
    $1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int, $8::text,
    $9::bytea, $10::text, $11::text, $12::text::jsonb, $13::text,
    timestamptz 'epoch' + $14::bigint / 1000000 * interval '1 second'
        + $14::bigint % 1000000 * interval '1 microsecond'$held$;
