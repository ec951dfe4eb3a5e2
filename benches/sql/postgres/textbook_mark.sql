update textbook set published_at = now() where seq = $1;
