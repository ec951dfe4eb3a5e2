-- The second half: a transaction takes a number. With how many the sequence gives at once: what a session kept of those
-- would lie below the floor.
select pg_current_xact_id()::text::bigint as xid, (select token from {outbox_life}) as token,
    (select seqcache from pg_sequence where seqrelid = {text:outbox_seq}::regclass) as cached;
