SELECT m.seq, m.late, m.document
FROM topic t JOIN message m ON m.topic_id = t.topic_id
WHERE t.name = ?1 AND m.seq > ?2
ORDER BY m.seq LIMIT ?3;
