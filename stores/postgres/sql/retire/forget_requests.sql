select {outbox_forget_requests}($1, $2);
