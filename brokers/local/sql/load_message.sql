SELECT t.name, m.late, m.document
FROM message m JOIN topic t ON t.topic_id = m.topic_id
WHERE m.seq = ?1;
