select source, event_id, handler, event_type, 'forgotten', attempts, received_at, forgotten_at, null, 0,
    number, who, why
from inbox_tombstone where event_id = ?1;
