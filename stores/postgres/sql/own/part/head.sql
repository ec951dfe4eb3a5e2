with stands as materialized (
    select from {outbox_lease} l where l.partition = $1 and l.owner = $2 and l.token = $3
), server as (
    select null::bigint as seq, (select token from {outbox_life}) as id,
        pg_current_wal_insert_lsn()::text as source,
        pg_current_wal_flush_lsn()::text as aggregate_type,
        (select d.id from {outbox_destination} d where d.id = $4::text) as aggregate_id,
        null::text as key, null::text as event_type, null::integer as event_version,
        null::text as payload, null::bytea as payload_bytes, null::text as content_type,
        null::text as encoding, null::jsonb as headers, null::text as tenant,
        null::smallint as format, null::timestamptz as occurred_at,
        null::timestamptz as created_at, null::timestamptz as erased_at
    from stands
)
