INSERT INTO message (topic_id, key, key_hash, event_id, source, late, stored_at_ms, document)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);
