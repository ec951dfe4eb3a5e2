select {outbox_retire_to}($1, $2, $3, $4);
