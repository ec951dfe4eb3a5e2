-- Settling. A part of a settlement is an object: destination; cursor, null or an object with from, at (its
-- base in hexadecimal, and its position), to, and the columns of outbox_cursor; buckets, rows of
-- outbox_settled; waiting, changes, disabled and ranges, as outbox_enter, outbox_change, outbox_endpoint and
-- outbox_change_ranges take them.

-- Locks a cursor, and moves it if it stands where the relay believes it to be. `gone` if the destination was
-- removed, `moved`, or `stands` if it was not to move, or was moved by this settlement before.
create function {outbox_advance}(p_partition smallint, p_destination text, p_cursor jsonb)
returns text language plpgsql as $$
declare
    v_stands {outbox_cursor};
    v_from bytea := decode(p_cursor ->> 'from', 'hex');
    v_at bigint := (p_cursor ->> 'at')::bigint;
    v_to {outbox_cursor} := jsonb_populate_record(null::{outbox_cursor}, p_cursor);
begin
    if v_from is not null then
        update {outbox_cursor} c
        set base = decode(p_cursor ->> 'to', 'hex'), position = v_to.position,
            base_xmax = v_to.base_xmax, floor = v_to.floor,
            pending_xids = v_to.pending_xids, pending_floors = v_to.pending_floors,
            target_xmin = v_to.target_xmin, target_xmax = v_to.target_xmax,
            target_xip = v_to.target_xip, target_floor = v_to.target_floor,
            ground = v_to.ground, saved_at = clock_timestamp()
        where c.destination = p_destination and c.partition = p_partition
            and c.base = v_from and c.position = v_at;
        if found then
            return 'moved';
        end if;
    end if;
    select c.* into v_stands from {outbox_cursor} c
    where c.destination = p_destination and c.partition = p_partition
    for no key update;
    if not found then
        return 'gone';
    end if;
    if v_from is null
        or (v_stands.base = decode(p_cursor ->> 'to', 'hex') and v_stands.position = v_to.position)
    then
        return 'stands';
    end if;
    raise exception using errcode = 'PRC01', message = format(
        'the saved cursor of destination %s in partition %s is not where the relay left it; nothing was written',
        p_destination, p_partition);
end
$$;

-- What becomes of ranges, one after the other: objects with kind, key_hash, and of `open` key, version and the columns of
-- a cursor, of `move` and `close` from and at, where the range stands, and of `move` the columns too. A range that is
-- there is not opened again, and one that does not stand where the relay left it is left as it is.
create function {outbox_change_ranges}(
    p_partition smallint, p_destination text, p_ranges jsonb, p_now timestamptz)
returns void language plpgsql as $$
declare
    v_change jsonb;
    v_to {outbox_range};
begin
    for v_change in
        select change from jsonb_array_elements(p_ranges) with ordinality o (change, nr) order by nr
    loop
        v_to := jsonb_populate_record(null::{outbox_range}, v_change);
        if v_change ->> 'kind' = 'open' then
            insert into {outbox_range} (destination, partition, key_hash, key, version, base, position, base_xmax,
                floor, pending_xids, pending_floors, target_xmin, target_xmax, target_xip, target_floor,
                ground, opened_at)
            values (p_destination, p_partition, v_to.key_hash, v_to.key, v_to.version,
                decode(v_change ->> 'to', 'hex'), v_to.position, v_to.base_xmax, v_to.floor,
                v_to.pending_xids, v_to.pending_floors, v_to.target_xmin, v_to.target_xmax,
                v_to.target_xip, v_to.target_floor, v_to.ground, p_now)
            on conflict (destination, partition, key_hash) do nothing;
        elsif v_change ->> 'kind' = 'move' then
            update {outbox_range} r
            set base = decode(v_change ->> 'to', 'hex'), position = v_to.position,
                base_xmax = v_to.base_xmax, floor = v_to.floor,
                pending_xids = v_to.pending_xids, pending_floors = v_to.pending_floors,
                target_xmin = v_to.target_xmin, target_xmax = v_to.target_xmax,
                target_xip = v_to.target_xip, target_floor = v_to.target_floor, ground = v_to.ground
            where r.destination = p_destination and r.partition = p_partition
                and r.key_hash = v_to.key_hash and r.base = decode(v_change ->> 'from', 'hex')
                and r.position = (v_change ->> 'at')::bigint;
        else
            delete from {outbox_range} r
            where r.destination = p_destination and r.partition = p_partition
                and r.key_hash = v_to.key_hash and r.base = decode(v_change ->> 'from', 'hex')
                and r.position = (v_change ->> 'at')::bigint;
        end if;
    end loop;
end
$$;

-- Counts what a cursor passed. Whoever moves a cursor has its row locked, so a bucket that is not there is
-- begun by nobody else, and need not be inserted on approval, which writes twice to the log of the server. The
-- exception is a recount that corrects the log at this moment: then the settlement is refused, and comes again.
-- Those that are there are found one by one, and there is hardly ever more than the last: a plan for all of them
-- together that is made while the log is empty reads all that the partition has in it for each save, later as well.
-- The setting is for the same reason.
create function {outbox_log}(
    p_partition smallint, p_destination text, p_buckets jsonb, p_floor bigint, p_relay text,
    p_now timestamptz)
returns void language plpgsql set enable_seqscan = off as $$
declare
    v_last bigint;
    b record;
begin
    select s.bucket into v_last from {outbox_settled} s
    where s.destination = p_destination and s.partition = p_partition
    order by s.bucket desc limit 1;
    for b in
        select * from jsonb_to_recordset(p_buckets) o (bucket bigint, count integer, id_sum bigint,
            acked integer, other_route integer, dropped integer, waiting integer, erased integer)
        where o.bucket <= v_last order by o.bucket
    loop
        update {outbox_settled} s set
            count = s.count + b.count,
            id_sum = {outbox_wrapping_add}(s.id_sum, b.id_sum),
            acked = s.acked + b.acked,
            other_route = s.other_route + b.other_route,
            dropped = s.dropped + b.dropped,
            waiting = s.waiting + b.waiting,
            erased = s.erased + b.erased,
            floor = least(s.floor, p_floor),
            relay = right(p_relay, 12),
            saved_at = p_now
        where s.destination = p_destination and s.partition = p_partition and s.bucket = b.bucket;
        if not found then
            insert into {outbox_settled} (destination, partition, bucket, count, id_sum, acked, other_route,
                dropped, waiting, erased, floor, relay, saved_at)
            values (p_destination, p_partition, b.bucket, b.count, b.id_sum, b.acked, b.other_route,
                b.dropped, b.waiting, b.erased, p_floor, right(p_relay, 12), p_now);
        end if;
    end loop;
    insert into {outbox_settled} (destination, partition, bucket, count, id_sum, acked, other_route,
        dropped, waiting, erased, floor, relay, saved_at)
    select p_destination, p_partition, o.bucket, o.count, o.id_sum, o.acked, o.other_route,
        o.dropped, o.waiting, o.erased, p_floor, right(p_relay, 12), p_now
    from jsonb_to_recordset(p_buckets) o (bucket bigint, count integer, id_sum bigint,
        acked integer, other_route integer, dropped integer, waiting integer, erased integer)
    where v_last is null or o.bucket > v_last
    order by o.bucket;
end
$$;

-- Writes a settlement, if its lease stands and the server's life is the one that its cursors were read in. A
-- server that crashed may have given the numbers behind such a cursor a second time. What only moves
-- cursors may be lost in a crash, and then comes again; what waits may not, and is numbered, so that one that
-- was sent again and arrives after all does not undo what happened since.
create function {outbox_settle}(
    p_partition smallint, p_owner text, p_token bigint, p_life uuid, p_durable boolean,
    p_parts jsonb, p_number bigint default null)
returns void language plpgsql set lock_timeout = '1s' as $$
declare
    v_now timestamptz;
    v_news bigint := 0;
    v_new bigint;
    v_part jsonb;
    v_destination text;
    v_came text;
begin
    if p_durable then
        perform {outbox_durably}();
    else
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if p_number is null then
        perform {outbox_fence}(p_partition, p_owner, p_token);
    elsif not {outbox_fence_in_order}(p_partition, p_owner, p_token, p_number) then
        return;
    end if;
    if p_life is not null and p_life is distinct from (select l.token from {outbox_life} l) then
        raise exception using errcode = 'PRC01', message =
            'the server has crashed since the partition was loaded; nothing was written, and what was not saved comes again';
    end if;
    for v_part in select part from jsonb_array_elements(p_parts) with ordinality o (part, nr)
        order by nr
    loop
        v_destination := v_part ->> 'destination';
        v_came := {outbox_advance}(
            p_partition, v_destination, nullif(v_part -> 'cursor', 'null'));
        v_now := clock_timestamp();
        -- One that was removed meanwhile takes nothing; to refuse the others of the partition for it would
        -- have them deliver again what is settled.
        continue when v_came = 'gone';
        if jsonb_array_length(v_part -> 'disabled') > 0 then
            insert into {outbox_endpoint} (destination, topic, detail, disabled_at)
            select v_destination, d.topic, d.detail, v_now
            from jsonb_to_recordset(v_part -> 'disabled') d (topic text, detail text)
            order by d.topic
            on conflict (destination, topic) do nothing;
            get diagnostics v_new = row_count;
            v_news := v_news + v_new;
        end if;
        if jsonb_array_length(v_part -> 'waiting') > 0 then
            perform {outbox_enter}(p_partition, v_destination, v_part -> 'waiting', v_now);
        end if;
        if jsonb_array_length(v_part -> 'changes') > 0 then
            perform {outbox_change}(p_partition, v_destination, v_part -> 'changes', v_now);
        end if;
        if jsonb_array_length(v_part -> 'ranges') > 0 then
            perform {outbox_change_ranges}(p_partition, v_destination, v_part -> 'ranges', v_now);
        end if;
        if v_came = 'moved' then
            perform {outbox_log}(p_partition, v_destination, v_part -> 'buckets',
                (v_part -> 'cursor' ->> 'ground')::bigint, p_owner, v_now);
        end if;
    end loop;
    if v_news > 0 then
        perform {outbox_bump}();
    end if;
end
$$;

-- The same for many partitions at once, of settlements that only move cursors: one commit instead of one for
-- each. A save is an object: partition, owner, token, life, and parts, in the order of the partitions. All are
-- written or none: whoever asks finds out which of them could not be by asking for each alone. Locks come in the
-- order in which everybody takes them: all leases, then all cursors, then the log.
create function {outbox_settle_many}(p_saves jsonb) returns void
language plpgsql set lock_timeout = '1s' as $$
declare
    v_life uuid := (select l.token from {outbox_life} l);
    v_now timestamptz;
    v_save jsonb;
    v_part jsonb;
    v_moved jsonb[] := '{}';
begin
    perform set_config('synchronous_commit', 'off', true);
    for v_save in select save from jsonb_array_elements(p_saves) with ordinality o (save, nr) order by nr
    loop
        perform {outbox_fence}((v_save ->> 'partition')::smallint, v_save ->> 'owner',
            (v_save ->> 'token')::bigint);
        if (v_save ->> 'life')::uuid is distinct from v_life then
            raise exception using errcode = 'PRC01', message =
                'the server has crashed since the partition was loaded; nothing was written, and what was not saved comes again';
        end if;
    end loop;
    for v_save, v_part in
        select o.save, part.part
        from jsonb_array_elements(p_saves) with ordinality o (save, nr),
            jsonb_array_elements(o.save -> 'parts') with ordinality part (part, nr)
        order by o.nr, part.nr
    loop
        if {outbox_advance}((v_save ->> 'partition')::smallint, v_part ->> 'destination',
            nullif(v_part -> 'cursor', 'null')) = 'moved'
        then
            v_moved := v_moved || (v_part || jsonb_build_object(
                'partition', v_save -> 'partition', 'relay', v_save -> 'owner'));
        end if;
    end loop;
    v_now := clock_timestamp();
    foreach v_part in array v_moved
    loop
        perform {outbox_log}((v_part ->> 'partition')::smallint, v_part ->> 'destination',
            v_part -> 'buckets', (v_part -> 'cursor' ->> 'ground')::bigint, v_part ->> 'relay', v_now);
    end loop;
end
$$;
