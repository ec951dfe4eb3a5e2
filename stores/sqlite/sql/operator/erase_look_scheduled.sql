select erased_at is null from outbox_scheduled where seq = ?1;
