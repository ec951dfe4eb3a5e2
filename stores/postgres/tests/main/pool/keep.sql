-- Beside the schema BARE: what it was when it was made, and how it becomes so again.
create schema "BARE_kept";

create table "BARE_kept".rows as select null::text as name, null::jsonb as rows where false;
create table "BARE_kept".shape (mark text not null);

-- Changes with every table, column, index, constraint, trigger, and function that is made, changed, or dropped.
create function "BARE_kept".mark() returns text language sql as $$
    select md5(string_agg(mark, ' ' order by mark)) from (
        select 'c' || oid || ':' || xmin from pg_class where relnamespace = '"BARE"'::regnamespace
        union all
        select 'p' || oid || ':' || xmin from pg_proc where pronamespace = '"BARE"'::regnamespace
        union all
        select 'k' || oid || ':' || xmin from pg_constraint where connamespace = '"BARE"'::regnamespace
        union all
        select 't' || t.oid || ':' || t.xmin from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = '"BARE"'::regnamespace
        union all
        select 'n' || oid || ':' || xmin from pg_namespace where nspname = 'BARE'
    ) marks (mark)
$$;

-- Ends the sessions of whoever had the schema, and makes its rows what they were. Not, if more than its rows
-- is another, nor if there was much in it: what deleted rows leave behind would be in its successor's way.
create function "BARE_kept".renew(pooled boolean) returns boolean language plpgsql as $$
declare
    one record;
    patience integer := 1000;
begin
    if not pooled then
        perform pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'BARE' and pid <> pg_backend_pid();
    end if;
    -- The server's own wait for an end looks only every 100 ms, for one session after the other.
    while exists (
        select from pg_stat_activity
        where application_name = 'BARE' and (state <> 'idle' or not pooled) and pid <> pg_backend_pid()
    ) loop
        patience := patience - 1;
        if patience = 0 then
            return false;
        end if;
        perform pg_sleep(0.005), pg_stat_clear_snapshot();
    end loop;
    if (select mark from "BARE_kept".shape) <> "BARE_kept".mark() then
        return false;
    end if;
    if (
        select sum(pg_relation_size(oid)) from pg_class where relnamespace = '"BARE"'::regnamespace
    ) > 8000000 then
        return false;
    end if;
    -- Neither triggers nor references: everything goes.
    perform set_config('session_replication_role', 'replica', true);
    for one in
        select oid::regclass::text as name, relkind from pg_class
        where relnamespace = '"BARE"'::regnamespace and relkind in ('r', 'S')
    loop
        if one.relkind = 'r' then
            execute 'delete from ' || one.name;
        else
            perform setval(one.name::regclass,
                (select seqstart from pg_sequence where seqrelid = one.name::regclass), false);
        end if;
    end loop;
    for one in select name, rows from "BARE_kept".rows loop
        execute format(
            'insert into %1$s overriding system value select * from jsonb_populate_recordset(null::%1$s, $1)',
            one.name
        ) using one.rows;
    end loop;
    update {outbox_meta} set value = gen_random_uuid()::text where key = 'store';
    update {outbox_life} set token = gen_random_uuid();
    return true;
end
$$;

do $$
declare
    one text;
begin
    for one in
        select oid::regclass::text from pg_class
        where relnamespace = '"BARE"'::regnamespace and relkind = 'r'
    loop
        execute format(
            'insert into "BARE_kept".rows select %L, jsonb_agg(to_jsonb(t)) from %s t having count(*) > 0',
            one, one
        );
    end loop;
    insert into "BARE_kept".shape select "BARE_kept".mark();
end
$$;
