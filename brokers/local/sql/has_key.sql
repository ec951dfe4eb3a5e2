SELECT EXISTS (SELECT 1 FROM delivery WHERE group_id = ?1 AND key_hash = ?2);
