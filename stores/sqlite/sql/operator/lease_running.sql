-- A relay that owns a partition at a moment.
select owner, expires_at from outbox_lease where owner is not null and expires_at > ?1 limit 1;
