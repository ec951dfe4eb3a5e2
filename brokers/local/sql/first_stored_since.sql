-- Clocks may step, so the first by number whose time qualifies, not the first by time.
SELECT min(seq) FROM message WHERE stored_at_ms >= ?1;
