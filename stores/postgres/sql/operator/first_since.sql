-- In a stretch of numbers, the first event that was created at or after a moment.
select min(o.seq)
from {outbox_lease} l
cross join lateral (
    select o.seq from {outbox} o
    where o.partition = l.partition and o.seq between $1 and $2 and o.created_at >= $3
    order by o.seq limit 1
) o;
