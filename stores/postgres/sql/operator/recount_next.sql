-- The first bucket behind one of which log or outbox have anything.
select least(
    (select min(s.bucket)
        from {outbox_cursor} c
        cross join lateral (
            select s.bucket from {outbox_settled} s
            where s.destination = c.destination and s.partition = c.partition and s.bucket > $2
            order by s.bucket limit 1) s
        where c.destination = $1),
    (select min(o.seq) / 4096
        from {outbox_cursor} c
        cross join lateral (
            select o.seq from {outbox} o
            where o.partition = c.partition and o.seq >= ($2 + 1) * 4096
            order by o.seq limit 1) o
        where c.destination = $1));
