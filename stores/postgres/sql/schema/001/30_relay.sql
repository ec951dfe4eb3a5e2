-- Where events go. The definition is JSON in a fixed order of fields, kept as text.
create table {outbox_destination} (
    id text primary key,
    kind text not null,
    definition text not null check (definition::json is not null),
    version integer not null check (version >= 1),
    state text not null default 'active' check (state in ('active', 'paused'))
);

-- How far a destination is settled. base and position are the cursor as the relay carries it; the other
-- columns are the same cursor for SQL: the base (base_xmax, floor, the transactions that were running at it with
-- their floors) and the target on the way to it. ground: at or below it nothing is still to come.
-- origin: what a destination that began at `now` is not owed, as far as it lies at or below origin_through:
-- what is sent again by a rewind or a repair counts as any other. Rows are updated in place.
create table {outbox_cursor} (
    destination text not null,
    partition smallint not null,
    base bytea not null,
    position bigint not null check (position >= 0),
    base_xmax bigint not null,
    floor bigint not null,
    pending_xids bigint[] not null default '{}',
    pending_floors bigint[] not null default '{}',
    target_xmin bigint,
    target_xmax bigint,
    target_xip bigint[] not null default '{}',
    target_floor bigint not null default 0,
    ground bigint not null,
    origin pg_snapshot,
    origin_through bigint not null default 9223372036854775807,
    replay_through bigint not null default 0,
    saved_at timestamptz not null default clock_timestamp(),
    primary key (destination, partition)
) with (fillfactor = 50);

-- Whether a cursor has passed a row: by its base, or by its position on the way to its target. A cursor
-- with base_xmax 0 takes every number beyond the target's for one of an older count.
create function {outbox_passed}(c {outbox_cursor}, xid bigint, seq bigint) returns boolean
language sql immutable parallel safe
return case
    when xid = any (c.pending_xids)
        then seq <= c.pending_floors[array_position(c.pending_xids, xid)]
    else xid < c.base_xmax or seq <= c.floor
end or coalesce(seq <= c.position and (
    xid < c.target_xmin
    or (xid < c.target_xmax and xid <> all (c.target_xip))
    or (c.base_xmax = 0 and xid >= c.target_xmax and seq <= c.target_floor)), false);

-- Whether a row is from before the destination began: not owed.
create function {outbox_predates}(c {outbox_cursor}, xid bigint, seq bigint) returns boolean
language sql stable parallel safe
return coalesce(
    seq <= c.origin_through and pg_visible_in_snapshot(xid::text::xid8, c.origin), false);

-- Which relay owns a partition. The token grows at every acquisition and never goes back.
create table {outbox_lease} (
    partition smallint primary key,
    owner text,
    token bigint not null default 0,
    free_since timestamptz not null default 'epoch',
    host text,
    boot text,
    lock_path text,
    takeovers integer not null default 0,
    -- Where each cursor stood when it was taken, as a digest, and through how many deaths in a row.
    cursors jsonb not null default '{}',
    -- An operator said that nobody is to own it.
    paused boolean not null default false
) with (fillfactor = 50);

-- What changes under a lease all the time, apart from it: each save looks its lease up, and beside a snapshot that somebody
-- holds an hour of renewals leaves 1,200 versions that nothing may clean away. Written by nobody who has not
-- locked the lease's row, at least against whoever would take it over.
create table {outbox_renewal} (
    partition smallint primary key,
    expires_at timestamptz not null default 'epoch',
    -- When it was taken or prolonged last, and in which life of the server: an owner that fell silent
    -- together with the server is not thought to have died of an event.
    renewed_at timestamptz not null default 'epoch',
    life uuid,
    -- The last settlement under it that changed what waits.
    settled bigint not null default 0,
    -- For retention: up to where every cursor had passed the partition at a moment, and up to where that was so when
    -- an event became old enough to go.
    aging bigint not null default 0,
    aging_since timestamptz not null default 'epoch',
    aged bigint not null default 0
) with (fillfactor = 50);

-- Which relays are alive, whether their definitions are the store's, and what keeps each from delivering, in its own
-- words: a JSON array, or nothing.
create table {outbox_relay} (
    owner text primary key,
    expires_at timestamptz not null,
    current boolean not null,
    hindrances text not null default ''
) with (fillfactor = 50);

-- Which life of the server this is. Empty after crash recovery and after a promotion, which take back
-- numbers of transactions; a clean restart keeps it.
create unlogged table {outbox_life} (
    only_row boolean primary key default true check (only_row),
    token uuid not null
);

-- Something to write where a flush of everything before is wanted.
create table {outbox_flush} (
    only_row boolean primary key default true check (only_row),
    count bigint not null default 0
) with (fillfactor = 10);

-- Events that left the window unacknowledged or have a counted failure. The event's columns are a copy
-- without checks: what could not be read must still be kept.
create table {outbox_waiting} (
    destination text not null,
    partition smallint not null,
    seq bigint not null,
    key text not null,
    key_hash bigint not null,
    state text not null
        check (state in ('retrying', 'parked', 'held', 'disabled', 'dead', 'discarded')),
    holds_key boolean not null,
    late boolean not null default false,
    next_at timestamptz not null,
    attempts integer not null default 0,
    reason text not null,
    detail text not null default '',
    endpoint text,
    moved_at timestamptz not null,
    id uuid,
    source text,
    aggregate_type text,
    aggregate_id text,
    event_key text,
    event_type text,
    event_version integer,
    payload text,
    payload_bytes bytea,
    content_type text,
    encoding text,
    headers jsonb,
    tenant text,
    format smallint,
    occurred_at timestamptz,
    created_at timestamptz,
    erased_at timestamptz,
    primary key (destination, seq),
    constraint a_disabled_event_waits_for_an_endpoint
        check ((state = 'disabled') = (endpoint is not null))
);

create index {name:outbox_waiting_due} on {outbox_waiting} (destination, partition, next_at, seq)
    where state in ('retrying', 'held');

create index {name:outbox_waiting_key} on {outbox_waiting} (destination, partition, key_hash, seq)
    where holds_key and state <> 'discarded';

-- `state` first: with the destination first it would do for a row by its number as well, in the eyes of a planner that
-- knows nothing of the table, and be read from end to end.
create index {name:outbox_waiting_state} on {outbox_waiting} (state, destination, seq);

create index {name:outbox_waiting_endpoint} on {outbox_waiting} (destination, endpoint, seq)
    where state = 'disabled';

-- What of a key is not copied into outbox_waiting, because so much of it stands there already: one row for all that
-- lies between a place of the key's own and the destination's. From base to ground the columns are a cursor, as
-- in outbox_cursor. It keeps what it has not passed from being retired; whoever sets the destination's cursor back goes back
-- to before it, and deletes it. key: for people, the first that was met of its hash. version: of the definition by
-- which events of the key were passed.
create table {outbox_range} (
    destination text not null,
    partition smallint not null,
    key_hash bigint not null,
    key text not null,
    version bigint not null,
    base bytea not null,
    position bigint not null check (position >= 0),
    base_xmax bigint not null,
    floor bigint not null,
    pending_xids bigint[] not null default '{}',
    pending_floors bigint[] not null default '{}',
    target_xmin bigint,
    target_xmax bigint,
    target_xip bigint[] not null default '{}',
    target_floor bigint not null default 0,
    ground bigint not null,
    opened_at timestamptz not null default clock_timestamp(),
    primary key (destination, partition, key_hash)
) with (fillfactor = 50);

-- Whether a range has passed a row: as outbox_passed, which says it of a destination's cursor.
create function {outbox_range_passed}(r {outbox_range}, xid bigint, seq bigint) returns boolean
language sql immutable parallel safe
return case
    when xid = any (r.pending_xids)
        then seq <= r.pending_floors[array_position(r.pending_xids, xid)]
    else xid < r.base_xmax or seq <= r.floor
end or coalesce(seq <= r.position and (
    xid < r.target_xmin
    or (xid < r.target_xmax and xid <> all (r.target_xip))
    or (r.base_xmax = 0 and xid >= r.target_xmax and seq <= r.target_floor)), false);

-- Endpoints that take nothing until an operator enables them.
create table {outbox_endpoint} (
    destination text not null,
    topic text not null,
    detail text not null default '',
    disabled_at timestamptz not null,
    primary key (destination, topic)
);

-- What became of the events a cursor passed, by 4,096 sequence numbers. Additive: rows of one bucket may be
-- passed in several targets. id_sum is the wrapping sum of the ids' digests, so that a recount of the outbox
-- can prove that nothing was skipped. floor: the least floor of the cursors that were saved with it. relay: the
-- end of the last one's name, which is different for each: rows are narrow, because there are many.
create table {outbox_settled} (
    destination text not null,
    partition smallint not null,
    bucket bigint not null,
    count integer not null,
    id_sum bigint not null,
    acked integer not null,
    other_route integer not null,
    dropped integer not null,
    waiting integer not null,
    erased integer not null,
    floor bigint not null,
    relay text not null,
    saved_at timestamptz not null,
    primary key (destination, partition, bucket)
) with (fillfactor = 80);

-- What operators ask of the partitions' owners. topic: of `enable`. target: of `rewind`, the number of the
-- first event to send again. total, done and skipped count rows of outbox_request_row.
create table {outbox_request} (
    id bigint primary key generated always as identity,
    verb text not null check (verb in ('redrive', 'discard', 'requeue', 'enable', 'rewind')),
    destination text,
    topic text,
    target bigint,
    who text not null,
    why text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    total bigint not null,
    done bigint not null default 0,
    skipped bigint not null default 0,
    relay text,
    finished_at timestamptz
);

create index {name:outbox_request_open} on {outbox_request} (id) where finished_at is null;

create index {name:outbox_request_finished} on {outbox_request} (finished_at)
    where finished_at is not null;

-- The rows that were counted, by partition. For `enable` and `rewind` one per partition, with seq 0.
create table {outbox_request_row} (
    request bigint not null,
    partition smallint not null,
    destination text not null,
    seq bigint not null,
    outcome text check (outcome in ('done', 'skipped')),
    primary key (request, partition, destination, seq)
);

create index {name:outbox_request_row_open} on {outbox_request_row}
    (partition, request, destination, seq) where outcome is null;

-- Who changed what, and why. Nothing deletes from it.
create table {outbox_audit} (
    number bigint primary key generated always as identity,
    at timestamptz not null default clock_timestamp(),
    who text not null,
    why text not null default '',
    what text not null,
    subject text not null default ''
);
