select coalesce(sum(count), 0), coalesce(sum(acked), 0), coalesce(sum(other_route), 0),
    coalesce(sum(dropped), 0), coalesce(sum(waiting), 0), coalesce(sum(erased), 0)
from outbox_settled where destination = ?1;
