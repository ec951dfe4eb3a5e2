select {inbox_complete_step}($1, $2, $3, $4, $5, $6);
