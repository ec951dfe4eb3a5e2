-- Rows of open requests go where their events are now.
update {outbox_request_row} r
set partition = e.partition
from {outbox_request_row} x
cross join lateral (
    select coalesce(
        (select w.partition from {outbox_waiting} w where w.destination = x.destination and w.seq = x.seq),
        (select o.partition from {outbox_lease} l
            join {outbox} o on o.partition = l.partition and o.seq = x.seq limit 1)) as partition
) e
where x.outcome is null and x.seq > 0 and e.partition <> x.partition
    and r.request = x.request and r.partition = x.partition and r.destination = x.destination
    and r.seq = x.seq;
