-- What would go with the tables: events, those of them that some destination has not passed, or that one of its ranges stands
-- for, what waits, what is scheduled, and the inbox. Counted, and not estimated.
select (select count(*) from {outbox}),
    case when exists (select from {outbox_cursor}) then (
        select count(distinct owed.seq)
        from (
            select o.seq
            from {outbox_cursor} c
            join {outbox} o on o.partition = c.partition and o.seq > c.ground
            where not {outbox_passed}(c, o.xid, o.seq) and not {outbox_predates}(c, o.xid, o.seq)
            union all
            select o.seq
            from {outbox_range} r
            join {outbox} o on o.partition = r.partition and o.seq > r.ground
            where not {outbox_range_passed}(r, o.xid, o.seq)
                and coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id) = r.key
        ) owed)
    else (select count(*) from {outbox}) end,
    (select count(*) from {outbox_waiting} where state <> 'discarded'),
    (select count(*) from {outbox_scheduled}),
    (select count(*) from {inbox});
