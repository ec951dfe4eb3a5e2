-- The marker, in the caller's transaction.
insert into inbox
    (source, event_id, handler, event_type, status, payload_hash, received_at, processed_at)
select ?1, ?2, ?3, ?4, 'processed', ?5, now, now
from (select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) as now)
where true
on conflict (source, event_id, handler) do nothing;
