-- What changes a row of the inbox. Each is one call, a transaction of its own but for `accept`, which is the
-- caller's. They wait for a row that somebody holds only so long: the session is shared, and others'
-- heartbeats are behind. Moments are read after the lock, so that what was waited for counts.

-- absent or expired: claimed, under a greater token than any before, also of a row that was forgotten or purged;
-- leased; processed; mismatch. 32 zero bytes are the hash of any payload: a person marked the row.
-- outlived: so many of the tries that were cut off were the asker's own, and did not end its process.
create function {inbox_claim}(
    of_source text, of_event uuid, of_handler text, of_type text, hash bytea, micros bigint, outlived integer,
    out answer text, out given bigint, out remaining bigint, out stored bytea, out tries integer,
    out lost integer)
language plpgsql set lock_timeout = '200ms'
as $body$
declare
    known {inbox};
    -- A purge leaves nothing that says how far its claims had counted. They were of the past, and claimed less often than
    -- once in a microsecond.
    v_first bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
begin
    -- A tombstone that came while we waited is to be seen.
    perform {outbox_read_committed}();
    -- A token that a crash takes back would be given twice.
    perform {outbox_durably}();
    -- Again when the row came or went in between.
    for attempt in 1..8 loop
        select * into known from {inbox} i
        where i.source = of_source and i.event_id = of_event and i.handler = of_handler;
        if not found then
            insert into {inbox} (source, event_id, handler, event_type, status, payload_hash, token, expires_at)
            values (of_source, of_event, of_handler, of_type, 'claimed', hash, v_first,
                clock_timestamp() + micros * interval '1 microsecond')
            on conflict do nothing;
            if found then
                -- After the row is there: whoever forgets one from now on forgets this one.
                select greatest(v_first, max(t.token) + 1) into given from {inbox_tombstone} t
                where t.source = of_source and t.event_id = of_event and t.handler = of_handler;
                if given > v_first then
                    update {inbox} i set token = given
                    where i.source = of_source and i.event_id = of_event and i.handler = of_handler;
                end if;
                tries := 1;
                lost := 0;
                answer := 'claimed';
                return;
            end if;
        elsif known.payload_hash <> hash and known.payload_hash <> decode(repeat('00', 32), 'hex')
            and (known.status = 'processed' or hash <> decode(repeat('00', 32), 'hex'))
        then
            answer := 'mismatch';
            return;
        elsif known.status = 'processed' then
            select r.result into stored from {inbox_result} r
            where r.source = of_source and r.event_id = of_event and r.handler = of_handler;
            answer := 'processed';
            return;
        elsif known.expires_at > clock_timestamp() then
            remaining := greatest(0, ceil(1000000 * extract(epoch from known.expires_at - clock_timestamp())));
            answer := 'leased';
            return;
        else
            update {inbox} i
            set token = i.token + 1, attempts = i.attempts + 1, failed = least(i.attempts, i.failed + outlived),
                expires_at = clock_timestamp() + micros * interval '1 microsecond',
                payload_hash = case i.payload_hash when decode(repeat('00', 32), 'hex') then hash else i.payload_hash end
            where i.source = of_source and i.event_id = of_event and i.handler = of_handler
                and i.status = 'claimed' and i.expires_at <= clock_timestamp()
                and i.payload_hash = known.payload_hash
            returning i.token, i.attempts, i.attempts - 1 - i.failed into given, tries, lost;
            if found then
                answer := 'claimed';
                return;
            end if;
        end if;
    end loop;
    raise exception using errcode = '40001', message = 'the row of the inbox comes and goes';
end
$body$;

create function {inbox_heartbeat}(
    of_source text, of_event uuid, of_handler text, of_token bigint, micros bigint) returns boolean
language plpgsql set lock_timeout = '200ms'
as $body$
begin
    update {inbox} i set expires_at = clock_timestamp() + micros * interval '1 microsecond'
    where i.source = of_source and i.event_id = of_event and i.handler = of_handler
        and i.token = of_token and i.status = 'claimed';
    return found;
end
$body$;

create function {inbox_complete}(
    of_source text, of_event uuid, of_handler text, of_token bigint, with_result bytea) returns boolean
language plpgsql set lock_timeout = '200ms'
as $body$
begin
    perform {outbox_durably}();
    update {inbox} i set status = 'processed', expires_at = null, processed_at = clock_timestamp()
    where i.source = of_source and i.event_id = of_event and i.handler = of_handler
        and i.token = of_token and i.status = 'claimed';
    if found then
        if octet_length(with_result) > 0 then
            insert into {inbox_result} (source, event_id, handler, result)
            values (of_source, of_event, of_handler, with_result)
            on conflict (source, event_id, handler) do update
            set result = excluded.result, completed_at = excluded.completed_at;
        end if;
        return true;
    end if;
    -- The answer of the first try may have been lost: then saying it again changes nothing.
    return exists (
        select from {inbox} i
        where i.source = of_source and i.event_id = of_event and i.handler = of_handler
            and i.token = of_token and i.status = 'processed');
end
$body$;

-- The token grows, so that whoever let go is refused. When that was stands as long before 1970 as it is after it, which
-- no lease ever ends at: retention goes by it. taken_back: how many fewer the tries are at most. ended: it came to an
-- end, so none before it counts as cut off.
create function {inbox_release}(
    of_source text, of_event uuid, of_handler text, of_token bigint, taken_back integer default 0,
    ended boolean default true) returns boolean
language plpgsql set lock_timeout = '200ms'
as $body$
begin
    perform {outbox_durably}();
    update {inbox} i set expires_at = 'epoch'::timestamptz - (clock_timestamp() - 'epoch'::timestamptz), token = i.token + 1,
        attempts = greatest(0, i.attempts - taken_back),
        failed = greatest(0, least(i.attempts - taken_back, case when ended then i.attempts else i.failed end))
    where i.source = of_source and i.event_id = of_event and i.handler = of_handler
        and i.token = of_token and i.status = 'claimed';
    return found;
end
$body$;

-- The first result stays: the step was done once.
create function {inbox_complete_step}(
    of_source text, of_event uuid, of_handler text, of_token bigint, of_step text, with_result bytea)
returns boolean
language plpgsql set lock_timeout = '200ms'
as $body$
begin
    perform {outbox_durably}();
    perform from {inbox} i
    where i.source = of_source and i.event_id = of_event and i.handler = of_handler
        and i.token = of_token and i.status = 'claimed'
    for share;
    if not found then
        return false;
    end if;
    insert into {inbox_step} (source, event_id, handler, step, result)
    values (of_source, of_event, of_handler, of_step, with_result)
    on conflict do nothing;
    return true;
end
$body$;

-- The marker, in the caller's transaction: first_time, duplicate, leased, mismatch. While another
-- transaction has the same event it is waited for, 10 s where the caller sets no lock_timeout. At REPEATABLE READ
-- and SERIALIZABLE what came after the caller's snapshot is a serialization failure (40001). A claim whose
-- lease ended counts as none; its token grows, so that its worker is refused.
create function {inbox_accept}(
    of_source text, of_event uuid, of_handler text, of_type text, hash bytea) returns text
language plpgsql
as $body$
declare
    known {inbox};
    unlimited boolean := current_setting('lock_timeout') = '0';
    set_to text;
    answer text;
begin
    if unlimited then
        -- Assigned, since `perform` is a query with a plan of its own.
        set_to := set_config('lock_timeout', '10s', true);
    end if;
    for attempt in 1..8 loop
        insert into {inbox} (source, event_id, handler, event_type, status, payload_hash, processed_at)
        values (of_source, of_event, of_handler, of_type, 'processed', hash, clock_timestamp())
        on conflict do nothing;
        if found then
            answer := 'first_time';
            exit;
        end if;
        select * into known from {inbox} i
        where i.source = of_source and i.event_id = of_event and i.handler = of_handler;
        continue when not found;
        answer := case
            when known.payload_hash <> hash and known.payload_hash <> decode(repeat('00', 32), 'hex')
                then 'mismatch'
            when known.status = 'processed' then 'duplicate'
            when known.expires_at > clock_timestamp() then 'leased'
        end;
        exit when answer is not null;
        update {inbox} i
        set status = 'processed', token = i.token + 1, attempts = i.attempts + 1, expires_at = null,
            processed_at = clock_timestamp(), payload_hash = hash
        where i.source = of_source and i.event_id = of_event and i.handler = of_handler
            and i.status = 'claimed' and i.expires_at <= clock_timestamp()
            and i.payload_hash = known.payload_hash;
        if found then
            answer := 'first_time';
            exit;
        end if;
    end loop;
    if answer is null then
        raise exception using errcode = '40001', message = 'the row of the inbox comes and goes';
    end if;
    if unlimited then
        set_to := set_config('lock_timeout', '0', true);
    end if;
    return answer;
end
$body$;
