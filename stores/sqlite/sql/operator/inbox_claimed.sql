-- Claimed, newest first, by the index inbox_claimed.
select source, event_id, handler, event_type, status, attempts, received_at, processed_at, expires_at,
    octet_length(result)
from inbox
where status = 'claimed' and (received_at, source, event_id, handler) < (?1, ?2, ?3, ?4)
order by received_at desc, source desc, event_id desc, handler desc;
