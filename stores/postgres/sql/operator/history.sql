-- Where the kept history begins, when its first event was created, and the last number there is.
select
    (select value::bigint from {outbox_meta} where key = 'history_start'),
    (select o.created_at
        from {outbox_lease} l
        cross join lateral (
            select o.seq, o.created_at from {outbox} o
            where o.partition = l.partition and o.seq >= (
                select value::bigint from {outbox_meta} where key = 'history_start')
            order by o.seq limit 1
        ) o
        order by o.seq limit 1),
    (select max(o.seq)
        from {outbox_lease} l
        cross join lateral (
            select o.seq from {outbox} o where o.partition = l.partition
            order by o.seq desc limit 1
        ) o);
