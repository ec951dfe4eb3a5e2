-- The way out for a default table that grew, because no relay made tables ahead for long. It becomes a table
-- like the others, with room for a trillion numbers more; an empty one takes its place; and the sequence leaps
-- to tables of the usual size. In steps, a call each, so that the next caller goes on where a crash stopped the
-- last one, and nothing is looked through under a lock for which a producer waits.

-- How many numbers above one were never given, because the sequence leapt over them.
create function {outbox_leapt}(p_above bigint) returns bigint language sql stable as $$
    select coalesce(sum(m.value::bigint - l.given - 1), 0)::bigint
    from {outbox_meta} m
    cross join lateral (select substring(m.key from '^leap_(\d+)$')::bigint as given) l
    where l.given >= p_above;
$$;

-- The highest number in one of the outbox's tables, by its index.
create function {outbox_highest}(p_table oid) returns bigint
language plpgsql stable set enable_seqscan = off as $$
declare
    v_highest bigint;
begin
    execute format('select max(o.seq) from {outbox_lease} l cross join lateral (
        select seq from %s where partition = l.partition order by seq desc limit 1) o',
        p_table::regclass) into v_highest;
    return v_highest;
end
$$;

-- Takes the next step, and says which: `bounded`, what the table may hold is said and is so from now on;
-- `proven`, what it held before was looked through; `split`, it is a table like the others; `leapt`, and no
-- number goes there any more. `none` if the default table is small, or somebody else is at it; `mixed` if it
-- also holds numbers below those of another table, which retention has to take first. The tables' owner does
-- it, whoever asks.
create function {outbox_split}(p_bytes_max bigint) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms' as $$
declare
    -- No outage lasts so many events, and 8,000 of them fit below 2^53.
    v_leap constant bigint := 1099511627776;
    v_step bigint := (select m.value::bigint from {outbox_meta} m where m.key = 'table_rows');
    v_default oid := (select t.id from {outbox_tables} t where t.lower is null);
    v_top bigint := (select coalesce(max(t.upper), 0) from {outbox_tables} t);
    v_given bigint;
    v_upper bigint;
    v_bounds record;
    v_mixed boolean;
begin
    if v_default is null
        or not pg_try_advisory_xact_lock(hashtextextended('postrider tables ' || {text:outbox}, 0))
    then
        return 'none';
    end if;
    -- Only under the lock: a sequence that was set back would give numbers twice.
    v_given := {outbox_given}();
    select t.upper into v_upper from {outbox_tables} t
    where t.lower <= v_given + 1 and t.upper > v_given + 1 and t.upper - t.lower >= v_leap / 2;
    if found then
        insert into {outbox_meta} (key, value) values ('leap_' || v_given, v_upper::text);
        perform setval({text:outbox_seq}, v_upper - 1);
        return 'leapt';
    end if;
    select c.convalidated as proven,
        substring(pg_get_constraintdef(c.oid) from 'seq >= \(?''?(\d+)')::bigint as lower,
        substring(pg_get_constraintdef(c.oid) from 'seq < \(?''?(\d+)')::bigint as upper into v_bounds
    from pg_constraint c where c.conrelid = v_default and c.conname = 'postrider_split';
    if found and v_bounds.lower < v_top then
        execute format('alter table %s drop constraint postrider_split', v_default::regclass);
    elsif found and not v_bounds.proven then
        execute format('alter table %s validate constraint postrider_split', v_default::regclass);
        return 'proven';
    elsif found then
        perform {outbox_swap}(v_default, v_bounds.lower, v_bounds.upper, v_step);
        return 'split';
    end if;
    if pg_relation_size(v_default) <= p_bytes_max or v_given + 1 < v_top then
        return 'none';
    end if;
    execute format('select exists (select from {outbox_lease} l cross join lateral (
        select seq from %s where partition = l.partition order by seq limit 1) o where o.seq < $1)',
        v_default::regclass) into v_mixed using v_top;
    if v_mixed then
        return 'mixed';
    end if;
    execute format(
        'alter table %s add constraint postrider_split check (seq >= %s::bigint and seq < %s::bigint) not valid',
        v_default::regclass, v_top, ((v_given + v_leap) / v_step + 1) * v_step);
    return 'bounded';
end
$$;

-- Makes the default table one for the numbers from lower to below upper, which a constraint of it proves that
-- it holds, so that the server does not look; makes an empty default one, and tables from upper on. Producers
-- wait for that: some milliseconds, after a wait of 200 ms at most for whoever has a transaction open. For
-- outbox_split, which runs it as the tables' owner.
create function {outbox_swap}(p_default oid, p_lower bigint, p_upper bigint, p_step bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms' as $$
declare
    v_parent record;
    v_names text[] := '{}';
    v_name text;
    v_number integer;
begin
    select c.relname, c.relnamespace::regnamespace::text as space into v_parent
    from pg_class c where c.oid = {text:outbox}::regclass;
    for v_number in 0..2 loop
        v_name := format('%s.%I', v_parent.space, v_parent.relname || '_p' || p_upper + v_number * p_step);
        execute format('create table %s (like %s including all)', v_name, {text:outbox});
        execute format('alter table %s replica identity full', v_name);
        v_names := v_names || v_name;
    end loop;
    execute format('lock table only %s in access exclusive mode', {text:outbox});
    execute format('alter table %s detach partition %s', {text:outbox}, p_default::regclass);
    execute format('alter table %s rename to %I', p_default::regclass, v_parent.relname || '_p' || p_lower);
    execute format('alter table %s attach partition %s for values from (%s) to (%s)',
        {text:outbox}, p_default::regclass, p_lower, p_upper);
    execute format('alter table %s drop constraint postrider_split', p_default::regclass);
    create table {outbox_default} partition of {outbox} default;
    alter table {outbox_default} replica identity full;
    for v_number in 0..2 loop
        execute format('alter table %s attach partition %s for values from (%s) to (%s)',
            {text:outbox}, v_names[v_number + 1], p_upper + v_number * p_step,
            p_upper + (v_number + 1) * p_step);
    end loop;
end
$$;
