select w.destination, w.created_at
from unnest($1::text[], $2::bigint[]) as e (destination, seq)
cross join lateral (
    select destination, created_at from {outbox_waiting}
    where destination = e.destination and seq = e.seq limit 1
) w;
