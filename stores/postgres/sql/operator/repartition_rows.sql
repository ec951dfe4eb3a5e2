-- The partition of events in a stretch of numbers, computed anew: of those above $3, and of those whose
-- transactions the cursors look for below it.
update {outbox} o
set partition = {outbox_partition_of}(coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id))
where o.seq between $1 and $2 and (o.seq > $3 or o.xid = any ($4::bigint[]))
    and o.partition
        <> {outbox_partition_of}(coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id));
