-- The second half of a tick that also makes durable what was committed before: a transaction that writes,
-- and commits when the log is flushed. The message is read by nobody. Whatever waits for another server is
-- none of ours. Where others have flushed the log up to $1 meanwhile, nothing is written, and no number taken.
with needed as materialized (
    select pg_current_wal_flush_lsn() < $1::text::pg_lsn as flush
)
select set_config('synchronous_commit', 'local', true),
    case when flush then pg_logical_emit_message(true, 'postrider', '')::text end,
    case when flush then pg_current_xact_id()::text::bigint end as xid,
    (select token from {outbox_life}) as token,
    (select seqcache from pg_sequence where seqrelid = {text:outbox_seq}::regclass) as cached
from needed;
