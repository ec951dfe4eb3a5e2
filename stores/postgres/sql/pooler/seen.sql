-- What was left in the session, the process that serves it, and how many transactions that has begun.
select coalesce(current_setting('postrider.examined', true), ''), pg_backend_pid(),
    (select split_part(l.virtualtransaction, '/', 2)::bigint from pg_catalog.pg_locks l
    where l.pid = pg_backend_pid() limit 1);
