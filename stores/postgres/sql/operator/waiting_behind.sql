-- What of the key stands before an event.
select destination, partition, seq, key, state, holds_key, late, next_at, attempts, reason, detail,
    endpoint, moved_at, id, event_type, aggregate_type, tenant, created_at
from {outbox_waiting}
where destination = $1 and partition = $2 and key_hash = $3 and key = $4
    and holds_key and state <> 'discarded' and seq < $5
order by seq limit $6;
