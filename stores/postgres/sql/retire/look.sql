-- Rows of a partition after a number, with whether each is not passed by every cursor and range or was not settled long
-- enough ago to go, and whether it waits anywhere. Nothing while something of the partition is to be sent again.
with o as materialized (
    select xid, seq from {outbox}
    where partition = $1::smallint and seq > $2::bigint
    order by seq limit $4::bigint
), young as materialized (
    select {outbox_young_from}($1::smallint, min(o.seq), max(o.seq),
        clock_timestamp() - $3::bigint * interval '1 microsecond') as first
    from o
)
select o.seq,
    coalesce(o.seq >= (select first from young), false) or exists (
        select from {outbox_cursor} c
        where c.partition = $1 and not {outbox_passed}(c, o.xid, o.seq))
    or exists (
        select from {outbox_range} r
        where r.partition = $1 and not {outbox_range_passed}(r, o.xid, o.seq)),
    exists (
        select from {outbox_cursor} c
        join {outbox_waiting} w on w.destination = c.destination and w.seq = o.seq
        where c.partition = $1 and w.state <> 'discarded')
from o
where exists (select from {outbox_cursor} c where c.partition = $1)
    and not {outbox_asked_below}($1, 9223372036854775807)
order by o.seq;
