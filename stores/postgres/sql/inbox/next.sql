-- Goes off together with `commit`, and begins the next event's transaction after it, with a time and with
-- characteristics of its own. The limit is for a process that is stopped before it lets go: nobody looks after the
-- transaction then but the server.
rollback;
begin;
set local idle_in_transaction_session_timeout = '5s';
