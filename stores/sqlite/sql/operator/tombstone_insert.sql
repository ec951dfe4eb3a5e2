insert into inbox_tombstone
    (source, event_id, handler, event_type, was, attempts, received_at, processed_at, forgotten_at,
        who, why, token)
select source, event_id, handler, event_type, status, attempts, received_at, processed_at, ?4, ?5, ?6,
    token
from inbox where source = ?1 and event_id = ?2 and handler = ?3;
