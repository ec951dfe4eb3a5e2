-- Where the kept history begins, and when its first event was created.
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
        order by o.seq limit 1);
