SELECT d.seq, t.name, m.document, m.late, d.reason, d.count, d.dead_at_ms
FROM dead_letter d
JOIN message m ON m.seq = d.seq
JOIN topic t ON t.topic_id = m.topic_id
WHERE d.group_id = ?1 AND d.seq > ?2
ORDER BY d.seq LIMIT ?3;
