-- Whether a destination has passed anything from a number on: by its log, or, of what is left, by
-- the first rows of each partition. Cursors go up in numbers, so these are passed first. What waits, by a row or by a
-- range, is passed as well: a rewind sends it in its order again, and nothing is said of whether it was published.
select exists (
    select from {outbox_settled} s where s.destination = $1 and s.bucket > $2 / 4096
) or exists (
    select
    from {outbox_cursor} c
    cross join lateral (
        select o.xid, o.seq from {outbox} o
        where o.partition = c.partition and o.seq >= $2
        order by o.seq limit 5000
    ) o
    where c.destination = $1 and {outbox_covers}(c, o.xid, o.seq)
);
