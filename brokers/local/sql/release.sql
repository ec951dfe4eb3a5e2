-- A claim that nobody received: as if it had not been made.
UPDATE delivery SET visible_at_ms = 0, token = 0, count = count - 1
WHERE group_id = ?1 AND seq = ?2 AND token = ?3 AND head = 1;
