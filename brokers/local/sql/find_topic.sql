SELECT topic_id FROM topic WHERE name = ?1;
