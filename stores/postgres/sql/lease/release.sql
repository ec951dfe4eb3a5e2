select {outbox_release}($1, $2, $3);
