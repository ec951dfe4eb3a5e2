select source, event_id, handler, event_type, status, attempts, received_at, processed_at, expires_at,
    octet_length(result)
from inbox where source = ?1 and event_id = ?2;
