-- What lies before each cursor: the first $1 events are looked at. All at or below `reach` is passed, but
-- for what transactions that were open for long wrote below it; that is looked at where it is near.
select c.destination, b.lo, ahead.looked, ahead.unpassed, ahead.first, ahead.last, ahead.oldest,
    {outbox_leapt}(ahead.first), {outbox_leapt}(ahead.last), c.saved_at
from {outbox_cursor} c
cross join lateral (
    select greatest(c.floor, case when c.target_xmax is not null then c.position else 0 end) as reach
) r
cross join lateral (
    select case when r.reach - c.ground <= $1 then least(c.ground, r.reach) else r.reach end as lo
) b
cross join lateral (
    select count(*) as looked,
        count(*) filter (where not {outbox_passed}(c, o.xid, o.seq)) as unpassed,
        min(o.seq) as first, max(o.seq) as last,
        (array_agg(o.created_at order by o.seq)
            filter (where not {outbox_passed}(c, o.xid, o.seq)))[1] as oldest
    from (
        select xid, seq, created_at from {outbox}
        where partition = c.partition and seq > b.lo
        order by seq limit $1
    ) o
) ahead;
