-- What a row's columns may hold. Domains and not CHECKs: PostgreSQL reads and prepares a table's CHECKs anew for every
-- statement that writes, and the inbox is written one row at a time; a domain's are kept by the session.
create domain {inbox_status} as text
    constraint status_is_claimed_or_processed check (value in ('claimed', 'processed'));

create domain {inbox_payload_hash} as bytea
    constraint payload_hash_is_of_32_bytes check (octet_length(value) = 32);

-- Which (source, event id, handler) was done, or is being done. A narrow ledger, never partitioned, kept for
-- the dedup horizon; results and steps may expire sooner. token grows at every claim, also after a row was
-- forgotten. attempts: claims that count as tries; failed: those of them up to the last that came to an end, so that
-- the others before this one were cut off. expires_at: when the claim ends; before 1970: it was let go, as long after 1970.
create table {inbox} (
    source text not null,
    event_id uuid not null,
    handler text not null,
    event_type text not null,
    status {inbox_status} not null,
    payload_hash {inbox_payload_hash} not null,
    token bigint not null default 0,
    received_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    processed_at timestamptz,
    attempts integer not null default 1,
    failed integer not null default 0,
    primary key (source, event_id, handler),
    -- As short as it can be, for the same reason: `status` is what the functions write beside it.
    constraint a_row_expires_or_is_processed check ((expires_at is null) = (processed_at is not null))
) with (fillfactor = 70);

create index {name:inbox_processed} on {inbox} (processed_at);

-- Not by expires_at, which is the same: a heartbeat that changes a column of an index writes to all of them.
create index {name:inbox_claimed} on {inbox} (received_at) where processed_at is null;

-- What a handler answered, for whoever asks again; no row where it answered nothing. It may expire before
-- the row of the inbox, and goes with it when that is forgotten.
create table {inbox_result} (
    source text not null,
    event_id uuid not null,
    handler text not null,
    result bytea not null check (octet_length(result) <= 1048576),
    completed_at timestamptz not null default clock_timestamp(),
    primary key (source, event_id, handler)
);

create index {name:inbox_result_completed} on {inbox_result} (completed_at);

-- Results of external steps, so that a takeover resumes instead of repeating.
create table {inbox_step} (
    source text not null,
    event_id uuid not null,
    handler text not null,
    step text not null,
    result bytea not null check (octet_length(result) <= 1048576),
    completed_at timestamptz not null default clock_timestamp(),
    primary key (source, event_id, handler, step)
);

create index {name:inbox_step_completed} on {inbox_step} (completed_at);

-- For how long each handler's messages may come again, as its consumer says. No row of the inbox is purged
-- before the longest of them has passed.
create table {inbox_horizon} (
    handler text primary key,
    horizon interval not null check (horizon >= '0'),
    recorded_at timestamptz not null default clock_timestamp()
);

-- Rows of the inbox that an operator forgot. token: where the next claim goes on counting.
create table {inbox_tombstone} (
    number bigint primary key generated always as identity,
    source text not null,
    event_id uuid not null,
    handler text not null,
    event_type text not null,
    was text not null check (was in ('claimed', 'processed')),
    token bigint not null,
    attempts integer not null,
    received_at timestamptz not null,
    processed_at timestamptz,
    forgotten_at timestamptz not null default clock_timestamp(),
    who text not null,
    why text not null
);

create index {name:inbox_tombstone_event} on {inbox_tombstone} (source, event_id, handler);
