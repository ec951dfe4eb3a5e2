SELECT seq, key_hash FROM message
WHERE topic_id = ?1 AND seq > ?2
ORDER BY seq LIMIT ?3;
