SELECT seq, count, late FROM delivery
WHERE group_id = ?1 AND head = 1 AND visible_at_ms <= ?2
ORDER BY visible_at_ms, seq LIMIT ?3;
