-- The session is another transaction's in a moment: what is set ends with this one.
begin isolation level read committed;
set local idle_in_transaction_session_timeout = '5s';
set local statement_timeout = '120s';
set local search_path = pg_catalog;
set local jit = off;
