DELETE FROM delivery
WHERE group_id = ?1 AND seq = ?2 AND token = ?3 AND head = 1 AND visible_at_ms > ?4
RETURNING key_hash;
