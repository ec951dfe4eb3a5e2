truncate {outbox};
