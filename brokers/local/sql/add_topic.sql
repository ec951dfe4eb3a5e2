INSERT INTO topic (name) VALUES (?1) RETURNING topic_id;
