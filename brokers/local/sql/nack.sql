-- The token goes back to 0, which no delivery has: this receipt settles nothing more.
UPDATE delivery SET visible_at_ms = ?5, token = 0, count = count - ?6
WHERE group_id = ?1 AND seq = ?2 AND token = ?3 AND head = 1 AND visible_at_ms > ?4
RETURNING count;
