-- Waiting events. Whoever changes them, or moves a cursor, has first locked the lease's row and then the row
-- of outbox_cursor, in the order of partition and destination: so no two writers decide about one key at
-- once, and none waits for another in a circle. (The planner is kept to loops over indexes: it knows
-- nothing of a table that fills within a second, and would compare each row that enters with all that wait.)

-- The version that tells every relay to load the definitions again. Written last in a transaction, because
-- all that change definitions meet here.
create function {outbox_bump}() returns bigint language sql as $$
    update {outbox_meta} set value = (value::bigint + 1)::text where key = 'definitions_version'
    returning value::bigint;
$$;

-- The first that holds each of these keys becomes due, if it was parked.
create function {outbox_promote}(
    p_partition smallint, p_destination text, p_hashes bigint[], p_keys text[], p_now timestamptz)
returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off as $$
begin
    update {outbox_waiting} w
    set state = 'retrying', next_at = p_now, moved_at = p_now
    from unnest(p_hashes, p_keys) freed (key_hash, key)
    cross join lateral (
        select h.seq, h.state from {outbox_waiting} h
        where h.destination = p_destination and h.partition = p_partition
            and h.key_hash = freed.key_hash and h.key = freed.key
            and h.holds_key and h.state <> 'discarded'
        order by h.seq limit 1) head
    where head.state = 'parked' and w.destination = p_destination and w.seq = head.seq;
end
$$;

-- Copies events into `waiting`, as if one after the other by number. What is not dead is parked if an
-- earlier event holds its key, whatever was asked; later events of a key that were due, or that wait for a
-- disabled endpoint, are parked behind one that enters and holds the key. One that is there already, in any
-- state, is left as it is. One whose endpoint was enabled while this was on its way is due: nobody would
-- let it out. Events are copied from the outbox, but for those that bring theirs along (`event`, an object
-- of its columns), because they stand in a table of the application's own. There any column may be null: what of
-- the aggregate is missing counts as empty, as it does in the hash of the key.
create function {outbox_enter}(
    p_partition smallint, p_destination text, p_new jsonb, p_now timestamptz)
returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off as $$
begin
    with asked as (
        select g.seq, g.id, g.key_hash, g.holds, g.delay, g.attempts, g.reason, g.detail, g.event,
            case when d.topic is not null then g.endpoint end as endpoint,
            case when g.endpoint is not null and d.topic is null then 'retrying' else g.state
                end as state,
            coalesce(o.key, concat(o.aggregate_type, '/', o.aggregate_id)) as lane
        from jsonb_to_recordset(p_new) g (seq bigint, id uuid, key_hash bigint, state text,
            holds boolean, delay bigint, attempts integer, reason text, detail text, endpoint text,
            event jsonb)
        cross join lateral (
            select o.key, o.aggregate_type, o.aggregate_id from {outbox} o
            where g.event is null and o.partition = p_partition and o.seq = g.seq and o.id = g.id
            union all
            select e.key, e.aggregate_type, e.aggregate_id
            from jsonb_populate_record(null::{outbox}, g.event) e where g.event is not null) o
        left join {outbox_endpoint} d on d.destination = p_destination and d.topic = g.endpoint
        where not exists (
            select from {outbox_waiting} w
            where w.destination = p_destination and w.seq = g.seq)
    ), placed as (
        select a.*, a.state <> 'dead' and (
            coalesce(bool_or(a.holds) over (partition by a.key_hash, a.lane order by a.seq
                rows between unbounded preceding and 1 preceding), false)
            or exists (
                select from {outbox_waiting} earlier
                where earlier.destination = p_destination and earlier.partition = p_partition
                    and earlier.key_hash = a.key_hash and earlier.key = a.lane
                    and earlier.holds_key and earlier.state <> 'discarded'
                    and earlier.seq < a.seq)) as behind
        from asked a
    ), entered as (
        insert into {outbox_waiting} (destination, partition, seq, key, key_hash, state, holds_key,
            next_at, attempts, reason, detail, endpoint, moved_at, id, source, aggregate_type,
            aggregate_id, event_key, event_type, event_version, payload, payload_bytes,
            content_type, encoding, headers, tenant, format, occurred_at, created_at, erased_at)
        select p_destination, p_partition, p.seq, p.lane, p.key_hash,
            case when p.behind then 'parked' else p.state end, p.holds,
            p_now + p.delay * interval '1 microsecond', p.attempts, p.reason, p.detail,
            case when not p.behind and p.state = 'disabled' then p.endpoint end, p_now,
            o.id, o.source, o.aggregate_type, o.aggregate_id, o.key, o.event_type, o.event_version,
            o.payload, o.payload_bytes, o.content_type, o.encoding, o.headers, o.tenant, o.format,
            o.occurred_at, o.created_at, o.erased_at
        from placed p
        cross join lateral (
            select o.id, o.source, o.aggregate_type, o.aggregate_id, o.key, o.event_type, o.event_version,
                o.payload, o.payload_bytes, o.content_type, o.encoding, o.headers, o.tenant,
                o.format, o.occurred_at, o.created_at, o.erased_at
            from {outbox} o
            where p.event is null and o.partition = p_partition and o.seq = p.seq and o.id = p.id
            union all
            select p.id, o.source, o.aggregate_type, o.aggregate_id, o.key, o.event_type, o.event_version,
                o.payload, o.payload_bytes, o.content_type, o.encoding, o.headers, o.tenant,
                o.format, o.occurred_at, o.created_at, o.erased_at
            from jsonb_populate_record(null::{outbox}, p.event) o where p.event is not null) o
        on conflict (destination, seq) do nothing
        returning key_hash, key, seq, holds_key
    )
    update {outbox_waiting} w
    set state = 'parked', endpoint = null
    from (
        select e.key_hash, e.key, min(e.seq) as seq from entered e
        where e.holds_key group by e.key_hash, e.key) first
    where w.destination = p_destination and w.partition = p_partition
        and w.key_hash = first.key_hash and w.key = first.key and w.seq > first.seq
        and w.holds_key and w.state <> 'discarded' and w.state in ('retrying', 'held', 'disabled');
end
$$;

-- What happened to events that were waiting. `gone` and `dead` come first, with what they let go of, so that
-- a delay that another event of the key was given stands. A change of an event that an operator discarded
-- does nothing, and one that is late on purpose never holds its key. One row after the other, by its number: a plan for
-- all of them together that is made while nothing waits reads all that waits for the destination, later as well.
create function {outbox_change}(
    p_partition smallint, p_destination text, p_changes jsonb, p_now timestamptz)
returns void language plpgsql set enable_seqscan = off as $$
declare
    g record;
    v_hash bigint;
    v_key text;
    v_waits boolean;
    v_hashes bigint[] := '{}';
    v_keys text[] := '{}';
begin
    for g in
        select * from jsonb_to_recordset(p_changes) c (kind text, seq bigint, holds boolean,
            attempts integer, reason text, detail text)
        where c.kind in ('gone', 'dead')
    loop
        if g.kind = 'gone' then
            delete from {outbox_waiting} w
            where w.destination = p_destination and w.seq = g.seq and w.partition = p_partition
                and w.state <> 'discarded'
            returning w.key_hash, w.key into v_hash, v_key;
        else
            update {outbox_waiting} w
            set state = 'dead', endpoint = null, holds_key = g.holds and not w.late,
                attempts = g.attempts, reason = g.reason, detail = g.detail, moved_at = p_now
            where w.destination = p_destination and w.seq = g.seq and w.partition = p_partition
                and w.state <> 'discarded'
            returning w.key_hash, w.key into v_hash, v_key;
        end if;
        if found and (g.kind = 'gone' or not g.holds) then
            v_hashes := v_hashes || v_hash;
            v_keys := v_keys || v_key;
        end if;
    end loop;
    if cardinality(v_hashes) > 0 then
        perform {outbox_promote}(p_partition, p_destination, v_hashes, v_keys, p_now);
    end if;
    for g in
        select * from jsonb_to_recordset(p_changes) c (kind text, seq bigint, delay bigint,
            attempts integer, reason text, detail text, endpoint text)
        where c.kind in ('retry', 'disabled', 'postpone')
    loop
        v_waits := false;
        if g.endpoint is not null then
            v_waits := exists (
                select from {outbox_endpoint} d where d.destination = p_destination and d.topic = g.endpoint);
        end if;
        update {outbox_waiting} w
        set state = case when g.kind = 'retry' and g.reason = 'held' then 'held'
                when g.kind = 'retry' then 'retrying' when v_waits then 'disabled' else w.state end,
            endpoint = case when v_waits then g.endpoint end,
            next_at = case when v_waits then w.next_at
                else p_now + g.delay * interval '1 microsecond' end,
            attempts = case when g.kind = 'retry' then g.attempts else w.attempts end,
            reason = case when g.kind = 'retry' or v_waits then g.reason else w.reason end,
            detail = case when g.kind = 'retry' or v_waits then g.detail else w.detail end,
            moved_at = case when g.kind = 'retry' or v_waits then p_now else w.moved_at end
        where w.destination = p_destination and w.seq = g.seq and w.partition = p_partition
            and w.state in ('retrying', 'parked', 'held');
    end loop;
end
$$;

-- The runs of a partition whose heads are due, oldest due first, up to the limits: each head with what is
-- parked directly behind it, 16 of a key, so that one with thousands does not crowd out the others, and more where there
-- are few keys. Of a key
-- only the first that holds it is a head; what does not hold its key (late on purpose) is a head of its
-- own. The last event may go beyond the bytes: the caller knows what an event weighs beside its payload.
create function {outbox_due}(
    p_partition smallint, p_destination text, p_except bigint[], p_rows integer, p_bytes bigint,
    p_now timestamptz)
returns setof {outbox_waiting} language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off as $$
begin
    return query
    with heads as (
        select w.seq, w.key, w.key_hash, w.holds_key, w.next_at from {outbox_waiting} w
        where w.destination = p_destination and w.partition = p_partition
            and w.state in ('retrying', 'held') and w.next_at <= p_now and w.key_hash <> all (p_except)
            and not (w.holds_key and exists (
                select from {outbox_waiting} earlier
                where earlier.destination = p_destination and earlier.partition = p_partition
                    and earlier.key_hash = w.key_hash and earlier.key = w.key
                    and earlier.holds_key and earlier.state <> 'discarded'
                    and earlier.seq < w.seq))
        order by w.next_at, w.seq limit p_rows
    ), runs as (
        select h.next_at, h.seq as head, r.seq, r.bytes from heads h
        cross join lateral (
            select q.seq, q.bytes,
                bool_and(q.seq = h.seq or q.state = 'parked') over (order by q.seq) as goes_on
            from (
                (select w.seq, w.state, coalesce(octet_length(w.payload),
                    octet_length(w.payload_bytes), 0) as bytes
                from {outbox_waiting} w
                where h.holds_key and w.destination = p_destination
                    and w.partition = p_partition and w.key_hash = h.key_hash and w.key = h.key
                    and w.holds_key and w.state <> 'discarded' and w.seq >= h.seq
                order by w.seq
                limit greatest(16, p_rows / greatest((select count(*) from heads), 1)))
                union all
                select w.seq, w.state, coalesce(octet_length(w.payload),
                    octet_length(w.payload_bytes), 0)
                from {outbox_waiting} w
                where not h.holds_key and w.destination = p_destination and w.seq = h.seq) q) r
        where r.goes_on
    ), counted as (
        select r.seq, row_number() over run as nr, sum(r.bytes) over run - r.bytes as before
        from runs r
        window run as (order by r.next_at, r.head, r.seq
            rows between unbounded preceding and current row)
    )
    select w.* from counted c
    join {outbox_waiting} w on w.destination = p_destination and w.seq = c.seq
    where c.nr <= p_rows and (c.nr = 1 or c.before < p_bytes)
    order by c.nr;
end
$$;
