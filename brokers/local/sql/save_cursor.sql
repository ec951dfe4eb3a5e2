INSERT INTO group_cursor (group_id, topic_id, passed) VALUES (?1, ?2, ?3)
ON CONFLICT (group_id, topic_id) DO UPDATE SET passed = excluded.passed;
