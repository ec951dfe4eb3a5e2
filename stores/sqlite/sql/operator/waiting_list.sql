-- Events of a destination in one state, by number.
select destination, partition, seq, key, state, holds_key, late, next_at, attempts, reason, detail,
    endpoint, moved_at, id, event_type, aggregate_type, tenant, created_at
from outbox_waiting
where destination = ?1 and state = ?2 and seq > ?3
order by seq;
