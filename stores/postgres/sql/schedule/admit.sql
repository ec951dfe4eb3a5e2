select moved, next_micros from {outbox_admit}($1, $2, $3, $4);
