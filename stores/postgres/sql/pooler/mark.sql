-- Something is left in the session, to be found by the next statement.
select set_config('postrider.examined', $1::text, false), pg_backend_pid();
