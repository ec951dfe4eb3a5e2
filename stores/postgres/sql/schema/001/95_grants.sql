-- Whoever may use the schema may not yet act in it. PostgreSQL lets everybody execute a new function; here
-- that stays so for what a producer's insert runs: enqueue, the lock on its keys, the backlog, and what the
-- trigger calls; for arithmetic on a row that somebody may read; and for a look at the sequence by those who may
-- use it. Everything else is for those to whom it is granted (docs/operate/postgres.md). By the names of ours,
-- since the schema may have functions of the application's own.
do $body$
declare
    v_function regprocedure;
begin
    for v_function in
        select p.oid from pg_proc p
        join pg_class o on o.oid = {text:outbox}::regclass
            and o.relnamespace = p.pronamespace and o.relowner = p.proowner
        join pg_class i on i.oid = {text:inbox}::regclass
        where (starts_with(p.proname, o.relname || '_') or starts_with(p.proname, i.relname || '_'))
            and p.oid <> all (array[
                {text:outbox_hold_keys}, {text:outbox_backlog}, {text:outbox_partition_of},
                {text:outbox_wrapping_add}, {text:outbox_headers_are_plain}, {text:outbox_passed},
                {text:outbox_predates}, {text:outbox_covers}, {text:outbox_leapt},
                {text:outbox_given}]::regproc[]::oid[])
    loop
        execute format('revoke execute on function %s from public', v_function);
    end loop;
end
$body$;
