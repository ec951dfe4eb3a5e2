UPDATE delivery SET token = ?3, count = count + 1, visible_at_ms = ?4
WHERE group_id = ?1 AND seq = ?2;
