select pg_current_snapshot()::text, (select token from {outbox_life}) as token;
