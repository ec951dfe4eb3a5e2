DELETE FROM dead_letter WHERE group_id = ?1 AND seq = ?2 RETURNING key_hash;
