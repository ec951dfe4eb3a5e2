select {outbox_settle}($1, $2, $3, $4, $5, $6::text::jsonb, $7);
