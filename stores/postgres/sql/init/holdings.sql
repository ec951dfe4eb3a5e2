-- What would go with the tables: events, those of them that some destination has not passed, or only by a range, what
-- waits, what is scheduled, and the inbox. Counted, and not estimated.
select (select count(*) from {outbox}),
    case when exists (select from {outbox_cursor}) then (
        select count(*) from (
            select o.seq
            from {outbox_cursor} c
            join {outbox} o on o.partition = c.partition and o.seq > c.ground
            where not {outbox_passed}(c, o.xid, o.seq) and not {outbox_predates}(c, o.xid, o.seq)
            union
            select o.seq
            from {outbox_range} r
            join {outbox} o on o.partition = r.partition and o.seq > r.ground
            where r.key = coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id)
                and not {outbox_range_passed}(r, o.xid, o.seq)
                and not exists (
                    select from {outbox_waiting} w where w.destination = r.destination and w.seq = o.seq)
        ) undelivered)
    else (select count(*) from {outbox}) end,
    (select count(*) from {outbox_waiting} where state <> 'discarded'),
    (select count(*) from {outbox_scheduled}),
    (select count(*) from {inbox});
