SELECT topic_id, name FROM topic ORDER BY topic_id;
