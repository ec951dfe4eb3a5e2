-- Every statement sees the same snapshot, and none can write. The limit: an operator's reading must not
-- hold back the vacuum of a busy table for long. No sequential scan where an index serves: a plan that was
-- made while a partition was empty is kept when it has a million rows.
begin isolation level repeatable read read only;
set local search_path = pg_catalog;
set local jit = off;
set local enable_seqscan = off;
set local statement_timeout = '20s';
