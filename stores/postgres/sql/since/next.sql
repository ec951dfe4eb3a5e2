-- The first number from one on that an event has.
select min(o.seq)
from {outbox_lease} l
cross join lateral (
    select o.seq from {outbox} o
    where o.partition = l.partition and o.seq >= $1
    order by o.seq limit 1
) o;
