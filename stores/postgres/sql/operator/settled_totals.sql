select destination, sum(count)::bigint, sum(acked)::bigint, sum(other_route)::bigint,
    sum(dropped)::bigint, sum(waiting)::bigint, sum(erased)::bigint
from {outbox_settled} group by destination;
