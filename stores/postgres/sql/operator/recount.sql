-- What the settled log says of a stretch of buckets, and the ids of the events that the cursors have
-- passed there, each with its place in the bucket; and how many are not passed yet. One snapshot: a settlement
-- writes cursor and log at once.
with log as (
    select s.partition, s.bucket, s.count::bigint as count, s.id_sum
    from {outbox_settled} s
    where s.destination = $1 and s.bucket between $2 and $3
),
seen as (
    select o.partition, o.seq / 4096 as bucket,
        array_agg(o.id) filter (where owed.passed) as ids,
        array_agg((o.seq % 4096)::smallint) filter (where owed.passed) as places,
        max(o.seq) filter (where owed.passed) as last,
        count(*) filter (where not owed.passed) as ahead
    from {outbox_cursor} c
    join {outbox} o on o.partition = c.partition
    cross join lateral (select {outbox_passed}(c, o.xid, o.seq) as passed offset 0) owed
    where c.destination = $1 and o.seq between $2 * 4096 and $3 * 4096 + 4095
        and not {outbox_predates}(c, o.xid, o.seq)
    group by o.partition, o.seq / 4096
)
select partition, bucket, coalesce(log.count, 0), coalesce(log.id_sum, 0), coalesce(seen.ids, '{}'),
    seen.last,
    (select c.ground from {outbox_cursor} c
        where c.destination = $1 and c.partition = coalesce(log.partition, seen.partition)),
    coalesce(seen.places, '{}'), coalesce(seen.ahead, 0)
from log
full join seen using (partition, bucket)
order by bucket, partition;
