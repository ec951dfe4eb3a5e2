INSERT INTO delivery (group_id, seq, key_hash, head, late, token, count, visible_at_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);
