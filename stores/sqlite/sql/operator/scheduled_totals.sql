select count(*), min(due_ms) from outbox_scheduled;
