DELETE FROM message WHERE seq IN (
    SELECT m.seq FROM message m
    WHERE m.topic_id = ?1 AND m.seq <= ?2 AND m.stored_at_ms < ?3
      AND NOT EXISTS (SELECT 1 FROM dead_letter d WHERE d.seq = m.seq)
    ORDER BY m.seq LIMIT ?4
);
