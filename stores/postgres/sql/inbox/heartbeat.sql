select {inbox_heartbeat}($1, $2, $3, $4, $5);
