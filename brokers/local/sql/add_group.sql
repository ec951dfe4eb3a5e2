INSERT INTO consumer_group (name, start_after) VALUES (?1, ?2) RETURNING group_id;
