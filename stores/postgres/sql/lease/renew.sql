select place, number, relays, current_relays from {outbox_renew}($1, $2, $3, $4, $5);
