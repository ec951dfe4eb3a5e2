-- Whoever may use the schema may not yet act in it. PostgreSQL lets everybody execute a new function, unless the database's
-- default privileges say otherwise. Here everybody may execute, whatever these say, what a producer's insert runs: enqueue, the
-- lock on its keys, the backlog, and what the trigger calls; arithmetic on a row that somebody may read; and a look
-- at the sequence by those who may use it. Everything else is for those to whom it is granted
-- (docs/operate/postgres.md). By the names of ours, since the schema may have functions of the application's own.
do $body$
declare
    v_open oid[] := array[
        {text:outbox_hold_keys}, {text:outbox_backlog}, {text:outbox_partition_of},
        {text:outbox_wrapping_add}, {text:outbox_headers_are_plain}, {text:outbox_passed},
        {text:outbox_range_passed}, {text:outbox_predates}, {text:outbox_covers}, {text:outbox_leapt},
        {text:outbox_given}]::regproc[]::oid[]
        -- The application may have another of this name.
        || ({text:enqueue} || '(text, text, text, text, bytea, text, integer, text, text, jsonb, text, text, uuid,
            timestamptz, timestamptz, boolean)')::regprocedure::oid;
    v_function regprocedure;
begin
    for v_function in
        select p.oid from pg_proc p
        join pg_class o on o.oid = {text:outbox}::regclass
            and o.relnamespace = p.pronamespace and o.relowner = p.proowner
        join pg_class i on i.oid = {text:inbox}::regclass
        where (starts_with(p.proname, o.relname || '_') or starts_with(p.proname, i.relname || '_'))
            and p.oid <> all (v_open)
    loop
        execute format('revoke execute on function %s from public', v_function);
    end loop;
    foreach v_function in array v_open loop
        execute format('grant execute on function %s to public', v_function);
    end loop;
end
$body$;
