select {outbox_settle_many}($1::text::jsonb);
