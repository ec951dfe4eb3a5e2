SELECT t.topic_id, t.name, COALESCE(c.passed, g.start_after)
FROM consumer_group g
CROSS JOIN topic t
LEFT JOIN group_cursor c ON c.group_id = g.group_id AND c.topic_id = t.topic_id
WHERE g.group_id = ?1
  AND EXISTS (SELECT 1 FROM message m
              WHERE m.topic_id = t.topic_id AND m.seq > COALESCE(c.passed, g.start_after));
