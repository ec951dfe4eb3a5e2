-- Events of another server's count whose numbers lie beyond this one's counter, and which some cursor of their
-- partition has still to pass: they get a number that was finished before any server began to count. Not those
-- that a cursor looks for by their number.
update {outbox} o set xid = 2
where o.seq between $1 and $2
    and o.xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    and exists (
        select from {outbox_cursor} c
        where c.partition = o.partition and not {outbox_passed}(c, o.xid, o.seq))
    and not exists (
        select from {outbox_cursor} c
        where c.partition = o.partition and o.xid = any (c.pending_xids));
