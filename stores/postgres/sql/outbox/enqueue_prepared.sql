-- As enqueue, for a statement that is prepared with the columns' own types: a cast is set up anew each time.
insert into {outbox}
    (vouched, partition, id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, occurred_at)
select true, {outbox_partition_of}(coalesce($5, $3 || '/' || $4)),
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14$held$;
