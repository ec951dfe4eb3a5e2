select {outbox_retire_rows}($1, $2, $3, $4, $5);
