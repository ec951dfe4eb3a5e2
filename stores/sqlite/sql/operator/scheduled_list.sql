-- Scheduled events behind a place in the order (due, seq).
select seq, id, event_type, aggregate_type,
    coalesce(key, aggregate_type || '/' || aggregate_id), tenant, due_ms, created_at
from outbox_scheduled
where (due_ms, seq) > (?1, ?2)
    and (?3 is null or coalesce(key, aggregate_type || '/' || aggregate_id) = ?3)
order by due_ms, seq;
