-- What the application says, append-only. The trigger outbox_rules computes `partition` and refuses what
-- breaks a rule, unless its writer vouches for the row. That is a column of its own, which nobody sets who does not
-- mean it, and the condition is as short as it can be, since it is prepared anew for each statement.
-- `xid` stands before `seq`: defaults are evaluated in the order of the columns, so a
-- transaction has its number before it draws from the sequence, and the proof of the cursor's floor rests on
-- that. Producers set neither. CACHE 1, for the same reason.
create sequence {outbox_seq} as bigint cache 1;

-- What the sequence has given: the highest number, or 0. Read under the sequence's lock. `select last_value`
-- reads its row without: each 32 numbers nextval writes to the log that 32 more were given, by way of that very
-- row, and who looks at that moment reads a number that nobody was given yet.
create function {outbox_given}() returns bigint language sql volatile as $$
    select coalesce(pg_sequence_last_value({text:outbox_seq}::regclass), 0);
$$;

create table {outbox} (
    xid bigint not null default pg_current_xact_id()::text::bigint,
    seq bigint not null default nextval({text:outbox_seq}),
    partition {outbox_partition_number} not null,
    id uuid not null default gen_random_uuid(),
    source text,
    aggregate_type text not null,
    aggregate_id text not null,
    key text,
    event_type text not null,
    event_version integer not null default 1,
    payload text,
    payload_bytes bytea,
    content_type text not null default 'application/json',
    encoding text,
    headers jsonb not null default '{}',
    tenant text,
    format smallint not null default 1,
    occurred_at timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    erased_at timestamptz,
    vouched boolean
)$by_range$;

-- The outbox has no primary key, and beside a publication of all tables PostgreSQL refuses to erase or delete a row of
-- which a replica could not be told. It costs an insert nothing, and only where wal_level is logical a row that is erased
-- or deleted as much log as the row is long. Each table of a partitioned outbox has its own.
alter table {outbox} replica identity full;

alter sequence {outbox_seq} owned by {outbox}.seq;

create trigger {name:outbox_rules} before insert on {outbox}
for each row when (new.vouched is not true) execute function {outbox_rules}();

create index {name:outbox_partition_seq} on {outbox} (partition, seq);

-- Finds the rows of a transaction that was open for long, rows whose numbers went back, and where a moment
-- begins. Almost free: all three ascend with the rows.
create index {name:outbox_xid} on {outbox} using brin (xid, seq, created_at)
    with (autosummarize = on, pages_per_range = 32);

create function {outbox_append_only}() returns trigger language plpgsql as $$
begin
    if current_setting('postrider.repair', true) = 'on' then
        return new;
    end if;
    if old.erased_at is null and new.erased_at is not null
        and new.payload is null and new.payload_bytes is null
        and new.headers in (old.headers, '{}'::jsonb)
        and (new.xid, new.seq, new.partition, new.id, new.aggregate_type, new.aggregate_id, new.event_type,
            new.event_version, new.content_type, new.format, new.occurred_at, new.created_at)
            = (old.xid, old.seq, old.partition, old.id, old.aggregate_type, old.aggregate_id, old.event_type,
            old.event_version, old.content_type, old.format, old.occurred_at, old.created_at)
        and (new.source, new.key, new.encoding, new.tenant, new.vouched)
            is not distinct from (old.source, old.key, old.encoding, old.tenant, old.vouched)
    then
        return new;
    end if;
    raise exception 'the outbox is append-only: the only change is to erase, with payload and payload_bytes set to null and erased_at to a time';
end
$$;

create trigger {name:outbox_append_only} before update on {outbox}
for each row execute function {outbox_append_only}();

-- Events for later. The partition's owner moves them into the outbox in the order (due_at, seq).
create table {outbox_scheduled} (
    seq bigint primary key generated always as identity,
    partition {outbox_partition_number} not null,
    id uuid not null default gen_random_uuid(),
    source text,
    aggregate_type text not null,
    aggregate_id text not null,
    key text,
    event_type text not null,
    event_version integer not null default 1,
    payload text,
    payload_bytes bytea,
    content_type text not null default 'application/json',
    encoding text,
    headers jsonb not null default '{}',
    tenant text,
    format smallint not null default 1,
    occurred_at timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    erased_at timestamptz,
    vouched boolean,
    due_at timestamptz not null,
    constraint due_at_is_finite check (isfinite(due_at)),
    unique (id)
);

create index {name:outbox_scheduled_due} on {outbox_scheduled} (partition, due_at, seq);

create trigger {name:outbox_rules} before insert on {outbox_scheduled}
for each row when (new.vouched is not true) execute function {outbox_rules}();
