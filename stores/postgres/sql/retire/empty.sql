select gone, more from {outbox_empty}($1, $2, $3, $4);
