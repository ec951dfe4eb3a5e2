-- The first and the last number that are here, by the index of each partition.
select
    (select min(o.seq)
        from {outbox_lease} l
        cross join lateral (
            select o.seq from {outbox} o where o.partition = l.partition
            order by o.seq limit 1
        ) o),
    (select max(o.seq)
        from {outbox_lease} l
        cross join lateral (
            select o.seq from {outbox} o where o.partition = l.partition
            order by o.seq desc limit 1
        ) o);
