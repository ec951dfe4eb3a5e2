update textbook set published_at = now() where seq = any ($1);
