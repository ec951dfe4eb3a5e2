-- What would go with the tables: events, those of them that some destination has not passed, what waits, what is scheduled, and the
-- inbox. Counted, and not estimated.
select (select count(*) from {outbox}),
    case when exists (select from {outbox_cursor}) then (
        select count(distinct o.seq)
        from {outbox_cursor} c
        join {outbox} o on o.partition = c.partition and o.seq > c.ground
        where not {outbox_passed}(c, o.xid, o.seq) and not {outbox_predates}(c, o.xid, o.seq))
    else (select count(*) from {outbox}) end,
    (select count(*) from {outbox_waiting} where state <> 'discarded'),
    (select count(*) from {outbox_scheduled}),
    (select count(*) from {inbox});
