select status, payload_hash, token, expires_at, result from inbox
where source = ?1 and event_id = ?2 and handler = ?3;
