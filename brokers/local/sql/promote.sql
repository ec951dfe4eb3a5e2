UPDATE delivery SET head = 1
WHERE group_id = ?1
  AND seq = (SELECT min(seq) FROM delivery WHERE group_id = ?1 AND key_hash = ?2);
