select {outbox_split}($1);
