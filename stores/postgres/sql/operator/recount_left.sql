-- What a destination has passed of a bucket and does not wait there.
select o.seq, o.event_type, o.aggregate_type, o.tenant, o.erased_at is not null
from {outbox_cursor} c
join {outbox} o on o.partition = c.partition
where c.destination = $1 and c.partition = $2 and o.seq between $3 * 4096 and $3 * 4096 + 4095
    and {outbox_covers}(c, o.xid, o.seq)
    and not exists (
        select from {outbox_waiting} w where w.destination = c.destination and w.seq = o.seq)
order by o.seq;
