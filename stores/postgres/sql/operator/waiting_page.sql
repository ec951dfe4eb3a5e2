-- Events of a destination in some states, by number: each state by its own reading of the index.
select found.*
from unnest($2::text[]) as s (wanted)
cross join lateral (
    select destination, partition, seq, key, state, holds_key, late, next_at, attempts, reason, detail,
    endpoint, moved_at, id, event_type, aggregate_type, tenant, created_at
    from {outbox_waiting}
    where destination = $1 and state = s.wanted and seq > $3
    order by seq limit $4
) found
order by found.seq limit $4;
