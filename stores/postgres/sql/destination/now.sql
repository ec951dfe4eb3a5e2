-- The moment at which a destination begins, and in which life of the server.
select pg_current_snapshot()::text, (select token from {outbox_life}) as token;
