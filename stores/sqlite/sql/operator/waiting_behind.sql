-- What of the key stands before an event.
select destination, partition, seq, key, state, holds_key, late, next_at, attempts, reason, detail,
    endpoint, moved_at, id, event_type, aggregate_type, tenant, created_at
from outbox_waiting
where destination = ?1 and partition = ?2 and key = ?3 and holds_key = 1 and state <> 'discarded'
    and seq < ?4
order by seq limit ?5;
