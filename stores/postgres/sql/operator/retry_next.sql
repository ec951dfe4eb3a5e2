-- When the next event of a destination is tried, by the index of what is due.
select c.destination, min(next.next_at)
from {outbox_cursor} c
cross join lateral (
    select next_at from {outbox_waiting}
    where destination = c.destination and partition = c.partition and state in ('retrying', 'held')
    order by next_at limit 1
) next
group by c.destination;
