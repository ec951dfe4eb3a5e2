-- Scheduled events of some partitions behind a place in the order (due_at, seq).
select found.*
from unnest($1::smallint[]) as p
cross join lateral (
    select seq, id, event_type, aggregate_type,
        coalesce(key, aggregate_type || '/' || aggregate_id), tenant, due_at, created_at
    from {outbox_scheduled}
    where partition = p and (due_at, seq) > ($2, $3)
    order by due_at, seq limit $4
) found
order by found.due_at, found.seq limit $4;
