-- The second half: a transaction takes a number.
select pg_current_xact_id()::text::bigint as xid, (select token from {outbox_life}) as token;
