-- The second half of a tick that also makes durable what was committed before: a transaction that writes,
-- and commits when the log is flushed. The message is read by nobody. Whatever waits for another server is
-- none of ours.
select set_config('synchronous_commit', 'local', true),
    pg_logical_emit_message(true, 'postrider', '')::text,
    pg_current_xact_id()::text::bigint as xid, (select token from {outbox_life}) as token;
