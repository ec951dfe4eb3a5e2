-- A client that stops between two statements of a transaction must not hold its locks for long: settlements may wait for
-- them. 5 s: no busy machine keeps a program from its next statement for as long, and a relay that is kept back by 5 s
-- does not lose its leases.
set idle_in_transaction_session_timeout = '5s';
-- Longer than the program waits for anything: what it gave up must not go on for ever.
set statement_timeout = '120s';
-- What a role or a database is set to for its own programs is not meant for these sessions. They wait for locks as long as
-- their statements and functions say, have nothing to do at times, and hold some transactions that take longer than most.
-- Older servers do not know all of these.
set lock_timeout = 0;
select set_config(name, '0', false) from unnest(array['idle_session_timeout', 'transaction_timeout']) as name
where current_setting(name, true) is not null;
-- What was committed while a statement waited for a lock is to be seen afterwards, whatever the database or the role is
-- set to.
set default_transaction_isolation = 'read committed';
-- Names are written with their schema; nothing else is to be found by accident.
set search_path = pg_catalog;
-- Texts of the statements, and of what init makes, are written so.
set standard_conforming_strings = on;
-- An index scan of a few hundred rows gains nothing from being compiled.
set jit = off;
-- A plan may be made while a table is empty, and be kept while it fills: it must not read all of it then.
set enable_seqscan = off;
