-- Events that the sequence gave numbers a second time, at or below $1 and below where a cursor stands: no
-- cursor would ever come to them. They are known by a transaction that the cursor says cannot have written
-- there. After a move to another server ($2), whose numbers begin anew, every one is that was written by the
-- transaction that it names: what was restored was written by another. They get new numbers, in their order.
with lost as (
    select o.tableoid as child, o.ctid as place, o.seq, o.xid
    from {outbox} o
    where o.seq <= $1 and {outbox_is_own}(o.xmin, o.xid) and exists (
        select from {outbox_cursor} c
        where c.partition = o.partition and o.seq <= c.floor
            and ($2 or (c.base_xmax > 0 and o.xid >= c.base_xmax and o.xid <> all (c.pending_xids))))
),
numbered as (
    select child, place, nextval({text:outbox_seq}) as seq
    from (select * from lost order by seq, xid) l
)
update {outbox} o set seq = n.seq
from numbered n
where o.tableoid = n.child and o.ctid = n.place and o.seq <= $1;
