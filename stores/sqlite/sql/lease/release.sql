update outbox_lease
set owner = null, free_since = ?4, expires_at = ?4, host = null, boot = null, lock_path = null,
    takeovers = 0
where partition = ?1 and owner = ?2 and token = ?3;
