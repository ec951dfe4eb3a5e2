-- The session is another transaction's in a moment: what is set ends with this one.
begin isolation level read committed;
set local idle_in_transaction_session_timeout = '5s';
set local statement_timeout = '120s';
set local lock_timeout = 0;
select set_config('transaction_timeout', '0', true) where current_setting('transaction_timeout', true) is not null;
set local search_path = pg_catalog;
set local jit = off;
