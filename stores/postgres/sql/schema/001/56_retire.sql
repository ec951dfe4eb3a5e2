-- The number at or below which nothing is still to come, to any destination, nor to a range of one; null where there is no
-- destination.
create function {outbox_ground}() returns bigint language sql stable as $$
    select least(min(c.ground), (select min(r.ground) from {outbox_range} r))
    from {outbox_cursor} c having count(*) > 0;
$$;

-- Where the history that is kept begins: every event from this number on is there. Whoever adds a destination,
-- or sets a cursor back, asks here: nothing is retired until his transaction ends, and nothing is given back
-- that is being retired.
create function {outbox_history_start}() returns bigint language sql as $$
    select m.value::bigint from {outbox_meta} m where m.key = 'history_start' for share;
$$;

-- The tables of a partitioned outbox, each with the numbers from lower to below upper; both are null for the
-- one that takes what no table was made for. None where the outbox is one table.
create view {outbox_tables} as
select c.oid::bigint as id, c.relname::text as name,
    substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''?(\d+)')::bigint as lower,
    substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''?(\d+)')::bigint as upper
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = {text:outbox}::regclass;

-- Makes tables ahead, so that the two after the present one are there. ATTACH locks the default table, which is
-- empty unless nobody came by here for long, and no table that producers write to. The tables' owner makes
-- them, whoever asks. Returns how many were made, or -1 if the default table holds too much to be looked
-- through under a lock, or is half split: then outbox_split helps.
create function {outbox_ahead}() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms' as $$
declare
    v_step bigint := (select m.value::bigint from {outbox_meta} m where m.key = 'table_rows');
    v_default oid := (select t.id from {outbox_tables} t where t.lower is null);
    v_given bigint := {outbox_given}();
    v_enough bigint := (v_given / v_step + 3) * v_step;
    v_top bigint := (select coalesce(max(t.upper), 0) from {outbox_tables} t);
    v_last bigint;
    v_made integer := 0;
    v_parent record;
    v_name text;
begin
    if v_default is null then
        return 0;
    end if;
    if v_top >= v_enough then
        return case when v_top - v_given > 549755813888 then -1 else 0 end;
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('postrider tables ' || {text:outbox}, 0)) then
        return 0;
    end if;
    v_top := (select coalesce(max(t.upper), 0) from {outbox_tables} t);
    if pg_relation_size(v_default) > 64 * 1024 * 1024 then
        return -1;
    end if;
    v_last := {outbox_highest}(v_default);
    if v_last >= v_top then
        -- What is on its way goes to the default table as well: leave it room.
        v_top := (greatest(v_given, v_last) / v_step + 2) * v_step;
        v_enough := v_top + 2 * v_step;
    end if;
    select c.relname, c.relnamespace::regnamespace::text as space into v_parent
    from pg_class c where c.oid = {text:outbox}::regclass;
    while v_top < v_enough loop
        v_name := format('%s.%I', v_parent.space, v_parent.relname || '_p' || v_top);
        execute format('create table %s (like %s including all)', v_name, {text:outbox});
        execute format('alter table %s replica identity full', v_name);
        execute format('alter table %s attach partition %s for values from (%s) to (%s)',
            {text:outbox}, v_name, v_top, v_top + v_step);
        v_top := v_top + v_step;
        v_made := v_made + 1;
    end loop;
    return v_made;
end
$$;

-- Whether something below a number is to be sent again, and not taken up by its owner yet. The recount has
-- booked it as waiting, and would not find it a second time.
create function {outbox_asked_below}(p_partition smallint, p_below bigint) returns boolean
language sql stable as $$
    select exists (
        select from {outbox_request} q
        join {outbox_request_row} r on r.request = q.id
        where q.finished_at is null and q.verb in ('requeue', 'rewind') and r.outcome is null
            and (p_partition is null or r.partition = p_partition)
            and case q.verb when 'rewind' then coalesce(q.target, 0) else r.seq end < p_below);
$$;

-- Whether something between two numbers is too young to go: passed by some cursor after a moment, or, where
-- no cursor counted anything there, committed after it.
create function {outbox_young}(p_from bigint, p_below bigint, p_cutoff timestamptz) returns boolean
language plpgsql stable as $$
declare
    v_latest timestamptz;
begin
    select max(l.latest) into v_latest
    from {outbox_cursor} c
    cross join lateral (
        select max(s.saved_at) as latest from {outbox_settled} s
        where s.destination = c.destination and s.partition = c.partition
            and s.bucket >= p_from / 4096 and s.bucket < p_below / 4096) l;
    if v_latest is null then
        select max(o.created_at) into v_latest from {outbox} o
        where o.seq >= p_from and o.seq < p_below;
    end if;
    return coalesce(v_latest >= p_cutoff, false);
end
$$;

-- Moves the beginning of history over whole tables that every cursor and range has passed for good and that are old
-- enough, and returns up to where. Committed before anything goes: whoever adds a destination or sets a
-- cursor back sees it first, or was waited for.
create function {outbox_retire_to}(
    p_partition smallint, p_owner text, p_token bigint, p_older_micros bigint)
returns bigint
language plpgsql set lock_timeout = '200ms' as $$
declare
    v_ground bigint := {outbox_ground}();
    v_start bigint;
    v_from bigint;
    v_bound bigint := 0;
    v_cutoff timestamptz := clock_timestamp() - p_older_micros * interval '1 microsecond';
    v_table record;
begin
    perform {outbox_fence}(p_partition, p_owner, p_token);
    if not exists (select from {outbox_tables} t where t.upper <= v_ground + 1) then
        return 0;
    end if;
    select m.value::bigint into v_start from {outbox_meta} m
    where m.key = 'history_start' for update;
    v_ground := {outbox_ground}();
    for v_table in
        select t.id, t.lower, t.upper from {outbox_tables} t
        where t.lower is not null order by t.lower
    loop
        exit when v_ground is null or v_table.upper > v_ground + 1;
        -- Between two tables there may be numbers that stand in the default one.
        v_from := coalesce(v_from, least(v_start, v_table.lower));
        if v_table.upper > v_start or pg_relation_size(v_table.id::oid) > 0 then
            exit when {outbox_asked_below}(null, v_table.upper);
            exit when {outbox_young}(v_from, v_table.upper, v_cutoff);
        end if;
        v_bound := v_table.upper;
        v_from := v_table.upper;
    end loop;
    if v_bound > v_start then
        update {outbox_meta} m set value = v_bound::text where m.key = 'history_start';
    end if;
    return v_bound;
end
$$;

-- Empties one table below a number that outbox_retire_to gave, with what is said of its events in the log and
-- among the discarded. TRUNCATE locks that table alone; where the disk is full the table is dropped. `more` if another is
-- to be emptied.
create function {outbox_empty}(
    p_partition smallint, p_owner text, p_token bigint, p_below bigint,
    out gone bigint, out more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms' as $$
declare
    v_start bigint;
    v_table record;
    v_last bigint;
begin
    perform {outbox_fence}(p_partition, p_owner, p_token);
    gone := 0;
    v_start := (select m.value::bigint from {outbox_meta} m where m.key = 'history_start');
    select t.id::oid::regclass as id, t.lower, t.upper into v_table from {outbox_tables} t
    where coalesce(t.upper, 0) <= least(p_below, v_start) and pg_relation_size(t.id::oid) > 0
    order by t.lower limit 1;
    more := found;
    if not found then
        return;
    end if;
    if v_table.lower is null then
        -- The default table: only if nothing in it is still needed. Asked twice, because the first answer
        -- costs nobody a lock.
        more := coalesce({outbox_highest}(v_table.id::oid) < least(p_below, v_start), true);
        if not more then
            return;
        end if;
        execute format('lock table %s in access exclusive mode', v_table.id);
        v_last := {outbox_highest}(v_table.id::oid);
        more := coalesce(v_last < least(p_below, v_start), true);
        if not more then
            return;
        end if;
        v_table.lower := 0;
        v_table.upper := coalesce(v_last + 1, 0);
    end if;
    begin
        execute format('truncate %s', v_table.id);
    exception when disk_full then
        -- An emptied table has new files, and its indexes a page each. Where there is no room for those either it goes as
        -- a whole, which takes none, but a lock on the outbox: producers and readers wait 200 ms for it at most.
        if v_table.id::oid = {text:outbox_default}::regclass or not pg_try_advisory_xact_lock(
            hashtextextended('postrider tables ' || {text:outbox}, 0))
        then
            raise;
        end if;
        execute format('drop table %s', v_table.id);
    end;
    select coalesce(max(passed.events), 0) into gone
    from (
        select sum(s.count) as events
        from {outbox_cursor} c
        join {outbox_settled} s on s.destination = c.destination and s.partition = c.partition
            and s.bucket >= v_table.lower / 4096 and s.bucket < v_table.upper / 4096
        group by c.destination) passed;
    delete from {outbox_settled} s
    using {outbox_cursor} c
    where s.destination = c.destination and s.partition = c.partition
        and s.bucket >= v_table.lower / 4096 and s.bucket < v_table.upper / 4096;
    delete from {outbox_waiting} w
    using {outbox_destination} d
    where w.destination = d.id and w.state = 'discarded'
        and w.seq >= v_table.lower and w.seq < v_table.upper;
end
$$;

-- Takes empty tables below the beginning of history out of the outbox. Producers and readers wait for it, 200
-- ms at most: whoever has a transaction open is let go first, by giving up. The tables' owner does it, whoever
-- asks.
create function {outbox_detach}() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms' as $$
declare
    v_start bigint := (select m.value::bigint from {outbox_meta} m where m.key = 'history_start');
    v_tables oid[] := array(
        select t.id::oid from {outbox_tables} t
        where t.upper <= v_start and pg_relation_size(t.id::oid) = 0
        order by t.lower limit 16);
    v_table oid;
begin
    if cardinality(v_tables) = 0
        or not pg_try_advisory_xact_lock(
            hashtextextended('postrider tables ' || {text:outbox}, 0))
    then
        return 0;
    end if;
    execute format('lock table only %s in access exclusive mode', {text:outbox});
    foreach v_table in array v_tables loop
        execute format('alter table %s detach partition %s', {text:outbox}, v_table::regclass);
        execute format('drop table %s', v_table::regclass);
    end loop;
    return cardinality(v_tables);
end
$$;

-- Notes up to where every cursor and range has passed a partition, and takes what was noted as long ago as events are kept for
-- old. The log says when something was passed only by stretches of numbers, of which the last one may be filled for
-- months. The floors of the cursors may lie behind what they have passed, so some rows above them are looked at as well.
-- What is to be passed once more is young again.
create function {outbox_age}(p_partition smallint, p_owner text, p_token bigint, p_older_micros bigint)
returns void
language plpgsql set lock_timeout = '1s' set enable_seqscan = off as $$
declare
    v_now timestamptz := clock_timestamp();
    v_cutoff timestamptz := v_now - p_older_micros * interval '1 microsecond';
    v_passed bigint;
begin
    perform {outbox_fence}(p_partition, p_owner, p_token);
    v_passed := coalesce((
        select min(greatest(c.floor, c.position)) from {outbox_cursor} c where c.partition = p_partition), 0);
    v_passed := least(v_passed, (
        select min(r.ground) from {outbox_range} r where r.partition = p_partition));
    select coalesce(min(o.seq) filter (where o.pending) - 1, max(o.seq), v_passed) into v_passed
    from (
        select a.seq, exists (
            select from {outbox_cursor} c
            where c.partition = p_partition and not {outbox_passed}(c, a.xid, a.seq))
            or exists (
            select from {outbox_range} r
            where r.partition = p_partition and not {outbox_range_passed}(r, a.xid, a.seq)) as pending
        from (
            select o.xid, o.seq from {outbox} o
            where o.partition = p_partition and o.seq > v_passed
            order by o.seq limit 4000) a) o;
    update {outbox_renewal} n set
        aged = least(v_passed, case when n.aging_since < v_cutoff then n.aging else n.aged end),
        aging = case when n.aging_since < v_cutoff then v_passed else least(v_passed, n.aging) end,
        aging_since = case when n.aging_since < v_cutoff then v_now else n.aging_since end
    where n.partition = p_partition
        and (n.aging_since < v_cutoff or n.aging > v_passed or n.aged > v_passed);
end
$$;

-- The first event of a partition between two numbers that has not been settled everywhere for long enough, or another
-- of its stretch of the log; where no cursor counted anything, of which something was created since. Null if all have.
-- Not by what an event says of its own age: it may come from the schedule, or from a backlog.
create function {outbox_young_from}(
    p_partition smallint, p_from bigint, p_through bigint, p_cutoff timestamptz) returns bigint
language plpgsql stable set enable_seqscan = off as $$
declare
    v_seq bigint := greatest(p_from, 1 + (
        select n.aged from {outbox_renewal} n where n.partition = p_partition));
    v_latest timestamptz;
begin
    loop
        select o.seq into v_seq from {outbox} o
        where o.partition = p_partition and o.seq >= v_seq and o.seq <= p_through
        order by o.seq limit 1;
        exit when not found;
        select max(s.saved_at) into v_latest
        from {outbox_cursor} c
        join {outbox_settled} s on s.destination = c.destination and s.partition = c.partition
            and s.bucket = v_seq / 4096
        where c.partition = p_partition;
        if v_latest is null then
            select max(o.created_at) into v_latest
            from {outbox_lease} l
            join {outbox} o on o.partition = l.partition
                and o.seq >= v_seq / 4096 * 4096 and o.seq < (v_seq / 4096 + 1) * 4096;
        end if;
        exit when v_latest >= p_cutoff;
        v_seq := (v_seq / 4096 + 1) * 4096;
    end loop;
    return v_seq;
end
$$;

-- Deletes events of one partition by their numbers, of each asked again whether it may go: passed by every
-- cursor and range, waiting nowhere, and settled long ago. With them goes what was discarded, and the log of what is gone. Returns
-- how many went.
create function {outbox_retire_rows}(
    p_partition smallint, p_owner text, p_token bigint, p_older_micros bigint, p_seqs bigint[])
returns bigint
language plpgsql set lock_timeout = '1s' set enable_seqscan = off as $$
declare
    v_cutoff timestamptz := clock_timestamp() - p_older_micros * interval '1 microsecond';
    v_start bigint;
    v_young bigint;
    v_gone record;
begin
    perform {outbox_fence}(p_partition, p_owner, p_token);
    select m.value::bigint into v_start from {outbox_meta} m
    where m.key = 'history_start' for update;
    if {outbox_asked_below}(p_partition, 9223372036854775807) then
        return 0;
    end if;
    v_young := (
        select {outbox_young_from}(p_partition, min(s), max(s), v_cutoff) from unnest(p_seqs) s);
    with gone as (
        delete from {outbox} o
        where o.partition = p_partition and o.seq = any (p_seqs)
            and o.seq < coalesce(v_young, 9223372036854775807)
            and exists (select from {outbox_cursor} c where c.partition = p_partition)
            and not exists (
                select from {outbox_cursor} c
                left join {outbox_waiting} w on w.destination = c.destination and w.seq = o.seq
                where c.partition = p_partition
                    and (not {outbox_passed}(c, o.xid, o.seq) or w.state <> 'discarded'))
            and not exists (
                select from {outbox_range} r
                where r.partition = p_partition and not {outbox_range_passed}(r, o.xid, o.seq))
        returning o.seq)
    select count(*) as rows, min(seq) as first, max(seq) as last into v_gone from gone;
    if v_gone.rows > 0 then
        delete from {outbox_waiting} w
        using {outbox_cursor} c
        where c.partition = p_partition and w.destination = c.destination
            and w.state = 'discarded' and w.partition = p_partition
            and w.seq between v_gone.first and v_gone.last
            and not exists (
                select from {outbox} o where o.partition = p_partition and o.seq = w.seq);
        v_start := greatest(v_start, v_gone.last + 1);
        update {outbox_meta} m set value = v_start::text where m.key = 'history_start';
        delete from {outbox_settled} s
        using {outbox_cursor} c
        where c.partition = p_partition and s.destination = c.destination
            and s.partition = p_partition and s.bucket < v_start / 4096;
    end if;
    return v_gone.rows;
end
$$;

-- Forgets requests that were finished long ago with their rows, so many rows at once. Says whether there are
-- more.
create function {outbox_forget_requests}(p_older_micros bigint, p_rows_max integer)
returns boolean
language plpgsql as $$
declare
    v_cutoff timestamptz := clock_timestamp() - p_older_micros * interval '1 microsecond';
    v_request bigint;
    v_room integer := p_rows_max;
    v_rows integer;
begin
    for v_request in
        select q.id from {outbox_request} q
        where q.finished_at < v_cutoff order by q.finished_at limit p_rows_max
        for update skip locked
    loop
        if v_room <= 0 then
            return true;
        end if;
        delete from {outbox_request_row} r
        where r.ctid = any (array(
            select d.ctid from {outbox_request_row} d where d.request = v_request limit v_room));
        get diagnostics v_rows = row_count;
        v_room := v_room - greatest(v_rows, 1);
        delete from {outbox_request} q
        where q.id = v_request
            and not exists (select from {outbox_request_row} r where r.request = q.id);
    end loop;
    return exists (select from {outbox_request} q where q.finished_at < v_cutoff);
end
$$;
