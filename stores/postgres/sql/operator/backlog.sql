-- The oldest events that a destination has not passed, so many at most, by what routes match.
select event_type, aggregate_type, tenant, count(*), (array_agg(created_at order by seq))[1]
from (
    select o.seq, o.event_type, o.aggregate_type, o.tenant, o.created_at
    from {outbox_cursor} c
    cross join lateral (
        select greatest(c.floor, case when c.target_xmax is not null then c.position else 0 end) as reach
    ) r
    cross join lateral (
        select case when r.reach - c.ground <= $2 then least(c.ground, r.reach) else r.reach end as lo
    ) b
    cross join lateral (
        select seq, event_type, aggregate_type, tenant, created_at
        from {outbox}
        where partition = c.partition and seq > b.lo and not {outbox_passed}(c, xid, seq)
        order by seq limit $2
    ) o
    where c.destination = $1
    order by o.seq limit $2
) oldest
group by event_type, aggregate_type, tenant
order by count(*) desc, min(seq);
