select value from {outbox_meta} where key = $1;
