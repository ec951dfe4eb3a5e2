-- Between which numbers something may still be to be passed. The cursors began anew before, behind all that ranges stood
-- for, and there are no ranges.
select
    (select min(c.ground) + 1 from {outbox_cursor} c),
    (select max(o.seq)
        from {outbox_lease} l
        cross join lateral (
            select o.seq from {outbox} o where o.partition = l.partition
            order by o.seq desc limit 1
        ) o);
