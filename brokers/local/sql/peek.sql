SELECT EXISTS (SELECT 1 FROM delivery
               WHERE group_id = ?1 AND head = 1 AND visible_at_ms <= ?2),
       (SELECT COALESCE(max(seq), 0) FROM message);
