-- The endpoints of each destination that are disabled, so many at most.
select d.id, e.topic
from {outbox_destination} d
cross join lateral (
    select topic from {outbox_endpoint} where destination = d.id order by topic limit $1
) e
order by d.id, e.topic;
