-- What Postrider would have published against what the loop marked, of the rows behind the beginning.
-- $1: how many numbers of each difference are listed. reordered: rows that the loop published before an
-- earlier one of their key.
with compared as (
    select {own:columns}, {own:loop} as by_loop, {own:loop_at} as loop_at
    from {own:table} o
    where {own:pending}
), told as (
    select c.seq, c.by_loop, coalesce(p.seq is not null and not p.waits, false) as by_postrider,
        c.loop_at < max(c.loop_at) over (
            partition by coalesce(c.key, concat(c.aggregate_type, '/', c.aggregate_id))
            order by c.seq rows between unbounded preceding and 1 preceding) as reordered
    from compared c
    left join {outbox_own_passed} p
        on p.seq = c.seq and p.id = c.id and p.destination <> 'unrouted'
)
select count(*) filter (where by_loop and by_postrider) as both,
    count(*) filter (where by_postrider and not by_loop) as only_postrider,
    count(*) filter (where by_loop and not by_postrider) as only_loop,
    count(*) filter (where not by_loop and not by_postrider) as neither,
    count(*) filter (where reordered) as reordered,
    (array_agg(seq order by seq) filter (where by_postrider and not by_loop))[1:$1::integer],
    (array_agg(seq order by seq) filter (where by_loop and not by_postrider))[1:$1::integer],
    (array_agg(seq order by seq) filter (where reordered))[1:$1::integer]
from told;
