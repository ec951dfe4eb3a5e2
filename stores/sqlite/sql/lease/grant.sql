update outbox_lease
set owner = ?2, token = token + 1, expires_at = ?3, host = ?4, boot = ?5, lock_path = ?6,
    takeovers = ?7, cursors = ?8
where partition = ?1
returning token;
