-- Rows that every cursor has passed, with whether each is too young to go and whether it waits
-- anywhere. The caller stops stepping where it has seen enough.
select o.seq,
    coalesce(cast(round((julianday(o.created_at) - 2440587.5) * 86400000) as integer) >= ?3, 1),
    exists (
        select 1 from outbox_cursor c
        cross join outbox_waiting w on w.destination = c.destination and w.seq = o.seq
        where c.partition = ?4 and w.state <> 'discarded')
from outbox o
where o.seq > ?1 and o.seq <= ?2
order by o.seq;
