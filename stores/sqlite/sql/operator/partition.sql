select paused from outbox_lease where partition = ?1;
