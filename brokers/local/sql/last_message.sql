SELECT COALESCE(max(seq), 0) FROM message;
