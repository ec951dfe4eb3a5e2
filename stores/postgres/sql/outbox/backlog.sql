select {outbox_backlog}() as backlog;
