-- What a transaction of several handlers has beside that of one. It gives up a lock soon that one handler would
-- wait for, as it holds the rows of others meanwhile; each is then done alone, and waits as it always did. A tenth of
-- the deadlock_timeout that servers come with: groups that wait for each other in a circle lose that and not a second.
-- And only we can commit it: the cursor is there to fail a COMMIT of a handler's, which would keep the markers of those whose
-- handlers were not called yet.
set local idle_in_transaction_session_timeout = '60s';
select set_config('lock_timeout', '100ms', true) where current_setting('lock_timeout') = '0';
declare postrider_group cursor with hold for select 1 / (0 * pg_backend_pid());
