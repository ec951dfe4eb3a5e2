INSERT INTO dead_letter (group_id, seq, key_hash, count, reason, dead_at_ms)
SELECT group_id, seq, key_hash, count, ?3, ?4 FROM delivery WHERE group_id = ?1 AND seq = ?2;
