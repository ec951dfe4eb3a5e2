INSERT INTO group_pattern (group_id, pattern) VALUES (?1, ?2) ON CONFLICT DO NOTHING;
