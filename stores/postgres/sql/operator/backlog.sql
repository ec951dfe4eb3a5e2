-- The oldest events that a destination has not passed, $2 of them at most, by what routes match. Looked for
-- among the $3 numbers that follow where the slowest of its cursors is.
with reached as (
    select c as cursor, c.partition,
        greatest(c.floor, case when c.target_xmax is not null then c.position else 0 end) as reach
    from {outbox_cursor} c
    where c.destination = $1
), begun as (
    select cursor, partition,
        case when reach - (cursor).ground <= $2 then least((cursor).ground, reach) else reach end as lo
    from reached
), bounded as (
    select cursor, partition, lo, min(lo) over () + $3 as hi from begun
)
select event_type, aggregate_type, tenant, count(*), (array_agg(created_at order by seq))[1]
from (
    select o.seq, o.event_type, o.aggregate_type, o.tenant, o.created_at
    from bounded b
    cross join lateral (
        select seq, event_type, aggregate_type, tenant, created_at
        from {outbox}
        where partition = b.partition and seq > b.lo and seq <= b.hi
            and not {outbox_passed}(b.cursor, xid, seq)
        order by seq limit $2
    ) o
    order by o.seq limit $2
) oldest
group by event_type, aggregate_type, tenant
order by count(*) desc, min(seq);
