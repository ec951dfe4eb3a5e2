DELETE FROM delivery WHERE group_id = ?1 AND seq = ?2 RETURNING key_hash;
