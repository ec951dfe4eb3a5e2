update textbook set published_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') where seq = ?1;
