-- Something is left in the session, to be found by the next statement.
select set_config('postrider.examined', $1::text, false), pg_backend_pid(),
    (select split_part(l.virtualtransaction, '/', 2)::bigint from pg_catalog.pg_locks l
    where l.pid = pg_backend_pid() limit 1);
