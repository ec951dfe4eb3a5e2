-- A request, its rows each in its partition, what it corrects of the settled log, and its row of the
-- audit table: one write. The partition is that of the waiting event, else of the event; what is
-- nowhere is left to the destination's first partition to skip. Where events are asked for, retention stands until the
-- request is there: it would look for requests, and then take what this one is about.
with asked as (
    select a.destination, a.seq from unnest($2::text[], $3::bigint[]) as a (destination, seq)
),
placed as (
    select a.destination, a.seq, coalesce(
        w.partition, o.partition,
        (select min(c.partition) from {outbox_cursor} c where c.destination = a.destination),
        0) as partition
    from asked a
    left join {outbox_waiting} w on w.destination = a.destination and w.seq = a.seq
    left join lateral (
        select o.partition
        from {outbox_lease} l
        join {outbox} o on o.partition = l.partition and o.seq = a.seq
        where w.partition is null
        limit 1
    ) o on true
),
request as (
    insert into {outbox_request} (verb, destination, who, why, total)
    select $1, case when cardinality($4::text[]) = 1 then ($4::text[])[1] end, $5, $6, count(*)
    from asked
    where $1 <> 'requeue' or (select {outbox_history_start}()) is not null
    having (select count(*) from {outbox_destination} d where d.id = any ($4::text[]))
        = cardinality($4::text[])
    returning id
),
parts as (
    insert into {outbox_request_row} (request, partition, destination, seq)
    select request.id, p.partition, p.destination, p.seq from request cross join placed p
),
noted as (
    insert into {outbox_audit} (who, why, what, subject)
    select $5, $6, $7, 'request ' || request.id || ': ' || $8 from request
),
-- The log as it is after everything of the bucket that is not elsewhere waits, or will; or, where it is known
-- what is missing, with that. Only where what it said, and what the cursor has passed, are as they were when
-- the correction was worked out, or have grown by as much.
correction as (
    select k.*, now.seen - k.seen as grown
    from request
    cross join json_to_recordset($9::text::json) as k (
        destination text, partition smallint, bucket bigint, is_added boolean, said bigint,
        said_sum bigint, seen bigint, seen_sum bigint, lack_sum bigint, other_route bigint,
        dropped bigint, waiting bigint, erased bigint)
    cross join lateral (
        select count(*) as seen
        from {outbox_cursor} c
        join {outbox} o on o.partition = c.partition
        where c.destination = k.destination and c.partition = k.partition
            and o.seq between k.bucket * 4096 and k.bucket * 4096 + 4095
            and {outbox_covers}(c, o.xid, o.seq)) now
    where k.is_added or now.seen = k.seen
),
corrected as (
    update {outbox_settled} s
    set count = k.seen, id_sum = k.seen_sum, acked = 0, other_route = k.other_route,
        dropped = k.dropped, waiting = k.waiting, erased = k.erased, relay = 'reconcile',
        saved_at = clock_timestamp()
    from correction k
    where s.destination = k.destination and s.partition = k.partition and s.bucket = k.bucket
        and not k.is_added and s.count = k.said and s.id_sum = k.said_sum
),
added as (
    update {outbox_settled} s
    set count = s.count + k.seen - k.said, id_sum = {outbox_wrapping_add}(s.id_sum, k.lack_sum),
        other_route = s.other_route + k.other_route, dropped = s.dropped + k.dropped,
        waiting = s.waiting + k.waiting, erased = s.erased + k.erased, relay = 'reconcile',
        saved_at = clock_timestamp()
    from correction k
    where s.destination = k.destination and s.partition = k.partition and s.bucket = k.bucket
        and k.is_added and s.count = k.said + k.grown
),
begun as (
    insert into {outbox_settled} (destination, partition, bucket, count, id_sum, acked, other_route,
        dropped, waiting, erased, floor, relay, saved_at)
    select k.destination, k.partition, k.bucket, k.seen, k.seen_sum, 0, k.other_route, k.dropped,
        k.waiting, k.erased, c.ground, 'reconcile', clock_timestamp()
    from correction k
    join {outbox_cursor} c on c.destination = k.destination and c.partition = k.partition
    where k.said = 0 and k.said_sum = 0
    on conflict (destination, partition, bucket) do nothing
)
select id from request;
