-- Every statement sees the same snapshot, and none can write. The limit: an operator's reading must not
-- hold back the vacuum of a busy table for long.
begin isolation level repeatable read read only;
set local search_path = pg_catalog;
set local jit = off;
set local statement_timeout = '20s';
