select partition from outbox_lease where paused = 1 order by partition;
