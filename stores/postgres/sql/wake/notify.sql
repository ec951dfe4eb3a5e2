-- Commits by itself, never with the change it tells of: transactions that notify commit one after the other.
select pg_notify({text:channel}, $1::text)::text;
