-- What operators asked for, carried out by the owner of the partition. Each row is changed and marked in one
-- transaction, so that it is never done twice. Locks come in this order: the lease, the cursors by
-- destination, the requests by id; see 51_waiting.sql for why no two writers decide about one key at once.

-- An event that was given up, or that waited for its endpoint, is due again: at once if it is the first that
-- holds its key, behind the first otherwise; what was due behind it is parked. One that does not hold its
-- key is late, and waits for nobody.
create function {outbox_bring_out}(
    p_partition smallint, p_destination text, p_seq bigint, p_from text, p_reason text,
    p_now timestamptz)
returns boolean language plpgsql
set enable_seqscan = off as $$
declare
    v_row record;
begin
    update {outbox_waiting} w
    set state = case
            when w.holds_key and exists (
                select from {outbox_waiting} earlier
                where earlier.destination = p_destination and earlier.partition = p_partition
                    and earlier.key_hash = w.key_hash and earlier.key = w.key
                    and earlier.holds_key and earlier.state <> 'discarded'
                    and earlier.seq < p_seq)
            then 'parked' else 'retrying'
        end,
        late = not w.holds_key, endpoint = null, next_at = p_now, moved_at = p_now,
        reason = p_reason, attempts = case w.state when 'dead' then 0 else w.attempts end
    where w.destination = p_destination and w.partition = p_partition and w.seq = p_seq
        and w.state = p_from
    returning w.key_hash, w.key, w.holds_key into v_row;
    if not found then
        return false;
    end if;
    if v_row.holds_key then
        update {outbox_waiting} w
        set state = 'parked', endpoint = null
        where w.destination = p_destination and w.partition = p_partition
            and w.key_hash = v_row.key_hash and w.key = v_row.key and w.seq > p_seq
            and w.holds_key and w.state in ('retrying', 'held', 'disabled');
    end if;
    return true;
end
$$;

-- Lets an event go for good; the next of its key comes out. The narrow row stays until its number is
-- retired, so that a crash does not bring the event back. Null if it is not to be had; else whether it
-- held its key.
create function {outbox_discard}(
    p_partition smallint, p_destination text, p_seq bigint, p_now timestamptz,
    out held boolean, out key_hash bigint)
language plpgsql as $$
declare
    v_row record;
begin
    select w.key_hash, w.key, w.holds_key into v_row from {outbox_waiting} w
    where w.destination = p_destination and w.partition = p_partition and w.seq = p_seq
        and w.state in ('dead', 'disabled')
    for update;
    if not found then
        return;
    end if;
    update {outbox_waiting} w
    set state = 'discarded', holds_key = false, endpoint = null, payload = null,
        payload_bytes = null, headers = null, moved_at = p_now
    where w.destination = p_destination and w.seq = p_seq;
    held := v_row.holds_key;
    key_hash := v_row.key_hash;
    if held then
        perform {outbox_promote}(
            p_partition, p_destination, array[v_row.key_hash], array[v_row.key], p_now);
    end if;
end
$$;

-- A copy that is late on purpose: it holds no key and waits for nobody. One that waits already is left as it
-- is, unless an operator had let it go. What the cursor has not passed comes by itself.
create function {outbox_requeue}(
    p_partition smallint, p_destination text, p_seq bigint, p_key_hash bigint, p_now timestamptz)
returns boolean language plpgsql as $$
begin
    insert into {outbox_waiting} as w (destination, partition, seq, key, key_hash, state, holds_key,
        late, next_at, attempts, reason, detail, moved_at, id, source, aggregate_type,
        aggregate_id, event_key, event_type, event_version, payload, payload_bytes, content_type,
        encoding, headers, tenant, format, occurred_at, created_at, erased_at)
    select p_destination, p_partition, o.seq, coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id),
        p_key_hash, 'retrying', false, true, p_now, 0, 'requeued', '', p_now, o.id, o.source,
        o.aggregate_type, o.aggregate_id, o.key, o.event_type, o.event_version, o.payload,
        o.payload_bytes, o.content_type, o.encoding, o.headers, o.tenant, o.format, o.occurred_at,
        o.created_at, o.erased_at
    from {outbox} o
    join {outbox_cursor} c on c.destination = p_destination and c.partition = p_partition
    where o.partition = p_partition and o.seq = p_seq and o.erased_at is null
        and {outbox_passed}(c, o.xid, o.seq)
        -- Nor what a range stands for: its owner copies it, and would count it twice.
        and not exists (
            select from {outbox_range} r
            where r.destination = p_destination and r.partition = p_partition
                and r.key_hash = p_key_hash and not {outbox_range_passed}(r, o.xid, o.seq))
    limit 1
    on conflict (destination, seq) do update set
        state = 'retrying', holds_key = false, late = true, next_at = p_now, attempts = 0,
        reason = 'requeued', detail = '', moved_at = p_now, endpoint = null,
        payload = excluded.payload, payload_bytes = excluded.payload_bytes,
        headers = excluded.headers
    where w.state = 'discarded';
    return found;
end
$$;

-- Lets the events of an endpoint out in their order, so many at once. Says whether more are left.
create function {outbox_let_out}(
    p_partition smallint, p_destination text, p_topic text, p_rows_max integer, p_now timestamptz,
    out let_out integer, out more boolean)
language plpgsql set enable_seqscan = off as $$
declare
    v_seq bigint;
begin
    let_out := 0;
    more := false;
    for v_seq in
        select w.seq from {outbox_waiting} w
        where w.destination = p_destination and w.endpoint = p_topic and w.state = 'disabled'
            and w.partition = p_partition
        order by w.seq limit p_rows_max + 1
    loop
        if let_out >= p_rows_max then
            more := true;
            return;
        end if;
        -- One that was parked behind an earlier one of its key meanwhile has come out with that.
        perform {outbox_bring_out}(
            p_partition, p_destination, v_seq, 'disabled', 'behind', p_now);
        let_out := let_out + 1;
    end loop;
end
$$;

-- Carries out rows of requests, in the order given, as long as there is room: objects with request,
-- destination, seq, verb, topic, fit (the event can be read), and key_hash. Returns one row for each that
-- was done, with `done`, `skipped`, or `begun`, the room it took, and the key it freed. Nothing, if the
-- lease is lost.
create function {outbox_carry_out}(
    p_partition smallint, p_owner text, p_token bigint, p_rows jsonb, p_room integer)
returns table (nr bigint, what text, took integer, freed bigint, enabled boolean)
language plpgsql set lock_timeout = '1s' as $$
declare
    v_now timestamptz;
    v_row record;
    v_gone record;
    v_out record;
    v_begun boolean;
    v_news boolean := false;
    v_done jsonb := '{}';
    v_skipped jsonb := '{}';
begin
    perform {outbox_read_committed}();
    perform {outbox_durably}();
    perform 1 from {outbox_lease} l
    where l.partition = p_partition and l.owner = p_owner and l.token = p_token
    for share;
    if not found then
        return;
    end if;
    perform 1 from {outbox_cursor} c
    where c.partition = p_partition
        and c.destination in (select r ->> 'destination' from jsonb_array_elements(p_rows) r)
    order by c.destination for no key update;
    perform 1 from {outbox_request} q
    where q.id in (select (r ->> 'request')::bigint from jsonb_array_elements(p_rows) r)
    order by q.id for no key update;
    v_now := clock_timestamp();
    for v_row in
        select o.nth, g.* from jsonb_array_elements(p_rows) with ordinality o (object, nth),
            jsonb_to_record(o.object) g (request bigint, destination text, seq bigint, verb text,
                topic text, fit boolean, key_hash bigint)
        order by o.nth
    loop
        exit when p_room <= 0;
        -- The answer of an earlier call may have been lost.
        continue when not exists (
            select from {outbox_request_row} r
            where r.request = v_row.request and r.partition = p_partition
                and r.destination = v_row.destination and r.seq = v_row.seq
                and r.outcome is null);
        nr := v_row.nth;
        what := 'skipped';
        took := 1;
        freed := null;
        enabled := false;
        if not exists (
            select from {outbox_cursor} c
            where c.destination = v_row.destination and c.partition = p_partition)
        then
            null;
        elsif v_row.verb = 'redrive' and v_row.fit then
            if {outbox_bring_out}(
                p_partition, v_row.destination, v_row.seq, 'dead', 'redriven', v_now)
            then
                what := 'done';
            -- What was erased needs no endpoint: it is not sent.
            elsif exists (
                    select from {outbox_waiting} w
                    where w.destination = v_row.destination and w.seq = v_row.seq
                        and w.erased_at is not null)
                and {outbox_bring_out}(
                    p_partition, v_row.destination, v_row.seq, 'disabled', 'redriven', v_now)
            then
                what := 'done';
            end if;
        elsif v_row.verb = 'discard' then
            v_gone := {outbox_discard}(p_partition, v_row.destination, v_row.seq, v_now);
            if v_gone.held is not null then
                what := 'done';
                freed := case when v_gone.held then v_gone.key_hash end;
            end if;
        elsif v_row.verb = 'requeue' and v_row.fit then
            if {outbox_requeue}(
                p_partition, v_row.destination, v_row.seq, v_row.key_hash, v_now)
            then
                what := 'done';
            end if;
        elsif v_row.verb = 'enable' and v_row.topic is not null then
            -- The first of all partitions takes it into service. If it was disabled anew since, what is
            -- left stays.
            select q.relay is not null into v_begun from {outbox_request} q
            where q.id = v_row.request;
            if not v_begun then
                delete from {outbox_endpoint} e
                where e.destination = v_row.destination and e.topic = v_row.topic;
                v_news := v_news or found;
                update {outbox_request} q set relay = p_owner where q.id = v_row.request;
            end if;
            what := 'done';
            enabled := not exists (
                select from {outbox_endpoint} e
                where e.destination = v_row.destination and e.topic = v_row.topic);
            if enabled then
                v_out := {outbox_let_out}(
                    p_partition, v_row.destination, v_row.topic, p_room, v_now);
                took := greatest(v_out.let_out, 1);
                what := case when v_out.more then 'begun' else 'done' end;
            end if;
        end if;
        return next;
        p_room := p_room - took;
        exit when what = 'begun';
        update {outbox_request_row} r set outcome = what
        where r.request = v_row.request and r.partition = p_partition
            and r.destination = v_row.destination and r.seq = v_row.seq;
        if what = 'done' then
            v_done := jsonb_set(v_done, array[v_row.request::text],
                to_jsonb(coalesce((v_done ->> v_row.request::text)::bigint, 0) + 1));
        else
            v_skipped := jsonb_set(v_skipped, array[v_row.request::text],
                to_jsonb(coalesce((v_skipped ->> v_row.request::text)::bigint, 0) + 1));
        end if;
    end loop;
    perform {outbox_tally}(p_owner, v_done, v_skipped);
    if v_news then
        perform {outbox_bump}();
    end if;
end
$$;

-- Counts what was done and what was skipped of each request, and ends those of which nothing is left.
create function {outbox_tally}(p_owner text, p_done jsonb, p_skipped jsonb) returns void
language sql as $$
    update {outbox_request} q
    set done = q.done + t.done, skipped = q.skipped + t.skipped, relay = p_owner,
        finished_at = case
            when q.done + q.skipped + t.done + t.skipped >= q.total then clock_timestamp()
        end
    from (
        select request::bigint, coalesce(max(value::text::bigint) filter (where done), 0) as done,
            coalesce(max(value::text::bigint) filter (where not done), 0) as skipped
        from (
            select key as request, value, true as done from jsonb_each(p_done)
            union all
            select key, value, false from jsonb_each(p_skipped)
        ) counted
        group by request
    ) t
    where q.id = t.request;
$$;

-- Sets a cursor back to a number, below which only some transactions are looked for that are open, forgets the log
-- above it and the ranges, before which it goes back, marks what is sent again as a replay, and lets
-- the lease go in the same write, so that its owner loads everything anew. Skipped where the history that
-- was asked for is gone, or nothing behind the target was passed. `moved` if the cursor or a range stands elsewhere
-- than the caller believes, `lost` if the lease is.
create function {outbox_rewind}(
    p_partition smallint, p_owner text, p_token bigint, p_request bigint, p_destination text,
    p_target bigint, p_from bytea, p_at bigint, p_to bytea, p_floor bigint,
    p_pending_xids bigint[], p_pending_floors bigint[], p_ground bigint)
returns text
language plpgsql set lock_timeout = '1s' as $$
declare
    v_cursor {outbox_cursor};
    v_outcome text := 'skipped';
begin
    perform {outbox_read_committed}();
    perform {outbox_durably}();
    -- Not for share: a settlement under the same lease may wait for the cursor, and this one for it.
    perform 1 from {outbox_lease} l
    where l.partition = p_partition and l.owner = p_owner and l.token = p_token
    for no key update;
    if not found then
        return 'lost';
    end if;
    select c.* into v_cursor from {outbox_cursor} c
    where c.destination = p_destination and c.partition = p_partition
    for no key update;
    if found and ((v_cursor.base, v_cursor.position) is distinct from (p_from, p_at) or exists (
        select from {outbox_range} r
        where r.destination = p_destination and r.partition = p_partition and r.ground < p_floor))
    then
        return 'moved';
    end if;
    perform 1 from {outbox_request} q where q.id = p_request for no key update;
    if not exists (
        select from {outbox_request_row} r
        where r.request = p_request and r.partition = p_partition
            and r.destination = p_destination and r.outcome is null)
    then
        return 'lost';
    end if;
    if v_cursor.destination is not null and p_target >= {outbox_history_start}()
        and exists (
            select from {outbox} o
            where o.partition = p_partition and o.seq >= p_target
                and {outbox_passed}(v_cursor, o.xid, o.seq))
    then
        update {outbox_cursor} c
        set base = p_to, position = 0, base_xmax = 0, floor = p_floor, pending_xids = p_pending_xids,
            pending_floors = p_pending_floors, target_xmin = null, target_xmax = null, target_xip = '{}',
            target_floor = 0, ground = p_ground, origin_through = least(c.origin_through, p_floor),
            saved_at = clock_timestamp(),
            replay_through = greatest(c.replay_through, (
                select o.seq from {outbox} o
                where o.partition = p_partition and o.seq >= p_target
                    and {outbox_passed}(v_cursor, o.xid, o.seq)
                order by o.seq desc limit 1))
        where c.destination = p_destination and c.partition = p_partition;
        delete from {outbox_range} r
        where r.destination = p_destination and r.partition = p_partition;
        delete from {outbox_settled} s
        where s.destination = p_destination and s.partition = p_partition
            and s.bucket >= (p_floor + 1) / 4096;
        perform {outbox_release}(array[p_partition], array[p_owner], array[p_token]);
        v_outcome := 'done';
    end if;
    update {outbox_request_row} r set outcome = v_outcome
    where r.request = p_request and r.partition = p_partition and r.destination = p_destination;
    perform {outbox_tally}(p_owner,
        case v_outcome when 'done' then jsonb_build_object(p_request, 1) else '{}' end,
        case v_outcome when 'skipped' then jsonb_build_object(p_request, 1) else '{}' end);
    return v_outcome;
end
$$;
