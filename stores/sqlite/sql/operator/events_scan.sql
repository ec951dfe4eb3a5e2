-- A stretch of the outbox, newest first, by what stands before the payload in a row.
select seq, event_type, aggregate_type
from outbox
where seq between ?1 and ?2
    and (?3 is null or coalesce(key, aggregate_type || '/' || aggregate_id) = ?3)
order by seq desc;
