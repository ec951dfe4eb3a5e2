-- For producers that have no other order of their own on a key: whoever takes the locks of its keys before
-- its events draw numbers commits them in the order of the numbers. The locks end with the transaction.
-- Keys are taken in one order, so that two transactions cannot wait for each other within one call.
create function {outbox_hold_keys}(keys text[]) returns integer
language sql volatile parallel unsafe as $$
    select count(pg_advisory_xact_lock(lock.id))::integer
    from (
        select distinct hashtextextended({text:outbox} || '/' || key, 1) as id
        from unnest(keys) as key order by id
    ) as lock
$$;

-- Stages one event in the transaction that calls it, and returns its id. The first four say what it is about
-- and what happened, the others are given by name; what is left out, or null, has the table's default:
--     select postrider.enqueue('order', '42', 'order.placed', '{"total": 1250}', tenant => 'acme');
-- With due_at the event is for later. With serialize it takes the lock on its key before its number.
create function {enqueue}(
    aggregate_type text,
    aggregate_id text,
    event_type text,
    payload text default null,
    payload_bytes bytea default null,
    key text default null,
    event_version integer default null,
    content_type text default null,
    encoding text default null,
    headers jsonb default null,
    tenant text default null,
    source text default null,
    id uuid default null,
    occurred_at timestamptz default null,
    due_at timestamptz default null,
    serialize boolean default false
) returns uuid
language plpgsql volatile parallel unsafe as $$
#variable_conflict use_variable
begin
    id := coalesce(id, gen_random_uuid());
    event_version := coalesce(event_version, 1);
    content_type := coalesce(content_type, case when payload_bytes is null
        then 'application/json' else 'application/octet-stream' end);
    headers := coalesce(headers, '{}');
    occurred_at := coalesce(occurred_at, clock_timestamp());
    if due_at is not null then
        insert into {outbox_scheduled}
            (id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
                payload_bytes, content_type, encoding, headers, tenant, occurred_at, due_at)
        values (id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
            payload_bytes, content_type, encoding, headers, tenant, occurred_at, due_at);
        return id;
    end if;
    if serialize then
        perform {outbox_hold_keys}(array[coalesce(key, aggregate_type || '/' || aggregate_id)]);
    end if;
    insert into {outbox}
        (id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
            payload_bytes, content_type, encoding, headers, tenant, occurred_at)
    values (id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
        payload_bytes, content_type, encoding, headers, tenant, occurred_at);
    return id;
end
$$;

-- About how many events the slowest destination that is not paused has yet to pass: of the numbers between its
-- cursor and a partition's newest row, that partition has its share. Where there is no destination nobody has
-- read anything. What the sequence leapt over counts nowhere. Producers may call it, and need not read the tables.
create function {outbox_backlog}() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    with leaps as materialized (
        select substring(m.key from '^leap_(\d+)$')::bigint as last, m.value::bigint - 1 as until
        from {outbox_meta} m where m.key ~ '^leap_\d+$'
    )
    select case
        when not exists (select from {outbox_destination}) then
            {outbox_given}() - (select coalesce(sum(l.until - l.last), 0)::bigint from leaps l)
        else coalesce((
            select max(of_destination.behind) from (
                select sum(greatest(head.seq - passed.seq - leapt.numbers, 0))
                    / (select count(*) from {outbox_lease}) as behind
                from {outbox_destination} d
                join {outbox_cursor} c on c.destination = d.id
                cross join lateral (select greatest(c.ground, c.floor, c.position) as seq) as passed
                cross join lateral (
                    select coalesce(max(o.seq), 0) as seq from {outbox} o
                    where o.partition = c.partition) as head
                cross join lateral (
                    select coalesce(sum(greatest(
                        least(head.seq, l.until) - greatest(passed.seq, l.last), 0)), 0) as numbers
                    from leaps l) as leapt
                where d.state = 'active'
                group by d.id
            ) as of_destination), 0)::bigint
    end
$$;
