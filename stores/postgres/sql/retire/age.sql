select {outbox_age}($1, $2, $3, $4);
