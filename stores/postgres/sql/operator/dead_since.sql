-- Of the oldest dead letters by number, so many of a destination: the moment the first gave up.
select d.id, dead.at
from {outbox_destination} d
cross join lateral (
    select min(moved_at) as at from (
        select moved_at from {outbox_waiting}
        where destination = d.id and state = 'dead' order by seq limit $1
    ) oldest
) dead;
