-- The first transaction that is not before this moment.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
