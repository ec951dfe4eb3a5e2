-- Commits by itself, never with the change it tells of: transactions that notify commit one after the other. It
-- does not wait for the disk: what it tells of is there already, and a notification that a crash takes back tells
-- nobody anything.
select set_config('synchronous_commit', 'off', true), pg_notify({text:channel}, $1::text)::text;
