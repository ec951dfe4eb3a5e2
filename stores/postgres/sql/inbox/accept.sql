select {inbox_accept}($1, $2, $3, $4, $5);
