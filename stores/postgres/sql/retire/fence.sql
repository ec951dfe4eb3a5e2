select {outbox_fence}($1, $2, $3);
