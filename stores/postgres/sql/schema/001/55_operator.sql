-- Whether the settled log counts a row: a cursor has passed it, and it is not from before the destination
-- began.
create function {outbox_covers}(c {outbox_cursor}, xid bigint, seq bigint) returns boolean
language sql stable parallel safe
return {outbox_passed}(c, xid, seq)
    and not coalesce(pg_visible_in_snapshot(xid::text::xid8, c.origin), false);
