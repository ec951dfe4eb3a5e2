-- Done, newest first, by the index inbox_processed.
select source, event_id, handler, event_type, status, attempts, received_at, processed_at, expires_at,
    octet_length(result)
from inbox
where status = 'processed' and (processed_at, source, event_id, handler) < (?1, ?2, ?3, ?4)
order by processed_at desc, source desc, event_id desc, handler desc;
