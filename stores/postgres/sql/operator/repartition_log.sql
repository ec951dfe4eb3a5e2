-- What the log says of some buckets of a destination, by the partitions that their events are in now, $4: each
-- with how many there are and the sum of their ids. What became of them is known by bucket, and is dealt out
-- to the partitions in their order. Where the sums do not agree, nothing is written.
with said as (
    delete from {outbox_settled} s
    where s.destination = $1 and s.bucket between $2 and $3
    returning s.bucket, s.count, s.id_sum, s.acked, s.other_route, s.dropped, s.waiting, s.floor, s.relay,
        s.saved_at
), total as (
    select bucket, sum(count) as count, mod(sum(id_sum) + 9223372036854775808 * 1000000, 18446744073709551616)
        as id_sum,
        sum(acked) as acked, sum(acked + other_route) as other_route,
        sum(acked + other_route + dropped) as dropped,
        sum(acked + other_route + dropped + waiting) as waiting,
        min(floor) as floor, max(relay) as relay, max(saved_at) as saved_at
    from said group by bucket
), found as (
    select f.partition, f.bucket, f.count, f.id_sum,
        sum(f.count) over (partition by f.bucket order by f.partition) as upto,
        sum(f.count) over (partition by f.bucket) as count_all,
        mod(sum(f.id_sum) over (partition by f.bucket) + 9223372036854775808 * 1000000, 18446744073709551616)
            as id_sum_all
    from jsonb_to_recordset($4::text::jsonb) f (partition smallint, bucket bigint, count bigint, id_sum bigint)
), dealt as (
    select f.*, t.floor, t.relay, t.saved_at, f.upto - f.count as before,
        least(greatest(t.acked, f.upto - f.count), f.upto) as acked,
        least(greatest(t.other_route, f.upto - f.count), f.upto) as other_route,
        least(greatest(t.dropped, f.upto - f.count), f.upto) as dropped,
        least(greatest(t.waiting, f.upto - f.count), f.upto) as waiting
    from found f
    join total t on t.bucket = f.bucket and t.count = f.count_all and t.id_sum = f.id_sum_all
)
insert into {outbox_settled} (destination, partition, bucket, count, id_sum, acked, other_route, dropped,
    waiting, erased, floor, relay, saved_at)
select $1, partition, bucket, count, id_sum, acked - before, other_route - acked, dropped - other_route,
    waiting - dropped, upto - waiting, floor, relay, saved_at
from dealt;
