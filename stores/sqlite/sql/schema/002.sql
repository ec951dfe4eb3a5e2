-- Postrider's tables, version 2: endpoints, requests of operators, audit, replay, tombstones.

-- Endpoints that take nothing until an operator enables them.
create table outbox_endpoint (
    destination text not null,
    topic text not null,
    detail text not null default '',
    disabled_at integer not null,
    primary key (destination, topic)
) strict, without rowid;

-- What operators ask of the partitions' owners. topic: of `enable`. target: of `rewind`, the number
-- of the first event to send again. total, done and skipped count rows of outbox_request_row.
create table outbox_request (
    id integer primary key autoincrement,
    verb text not null check (verb in ('redrive', 'discard', 'requeue', 'enable', 'rewind')),
    destination text,
    topic text,
    target integer,
    who text not null,
    why text not null default '',
    created_at integer not null,
    total integer not null,
    done integer not null default 0,
    skipped integer not null default 0,
    relay text,
    finished_at integer,
    constraint what_is_counted_adds_up check (done + skipped <= total)
) strict;

create index outbox_request_open on outbox_request (id) where finished_at is null;

create index outbox_request_finished on outbox_request (finished_at) where finished_at is not null;

-- The rows that were counted, by partition. For `enable` and `rewind` one per partition, with seq 0.
create table outbox_request_row (
    request integer not null,
    partition integer not null,
    destination text not null,
    seq integer not null,
    outcome text check (outcome in ('done', 'skipped')),
    primary key (request, partition, destination, seq)
) strict, without rowid;

create index outbox_request_row_open on outbox_request_row (partition, request, destination, seq)
    where outcome is null;

-- Who changed what, and why. Nothing deletes from it.
create table outbox_audit (
    number integer primary key autoincrement,
    at integer not null,
    who text not null,
    why text not null default '',
    what text not null,
    subject text not null default ''
) strict;

-- A partition that an operator paused is granted to nobody.
alter table outbox_lease add column paused integer not null default 0 check (paused in (0, 1));

-- Events up to this number are sent again because the destination was rewound, and are marked so.
alter table outbox_cursor add column replay_through integer not null default 0;

-- Rows of the inbox that an operator forgot.
create table inbox_tombstone (
    number integer primary key autoincrement,
    source text not null,
    event_id text not null,
    handler text not null,
    event_type text not null,
    was text not null check (was in ('claimed', 'processed')),
    attempts integer not null,
    received_at integer not null,
    processed_at integer,
    forgotten_at integer not null,
    who text not null,
    why text not null
) strict;

create index inbox_tombstone_event on inbox_tombstone (event_id, handler);

-- Claims are few at any moment; people look for those that got stuck.
create index inbox_claimed on inbox (received_at) where status = 'claimed';

-- `waiting` anew: one more state, and the endpoint that a disabled event waits for.
drop view outbox_status;
drop index outbox_waiting_due;
drop index outbox_waiting_key;
alter table outbox_waiting rename to outbox_waiting_001;

create table outbox_waiting (
    destination text not null,
    partition integer not null,
    seq integer not null,
    key text not null,
    key_hash integer not null,
    state text not null
        check (state in ('retrying', 'parked', 'held', 'disabled', 'dead', 'discarded')),
    holds_key integer not null check (holds_key in (0, 1)),
    late integer not null default 0 check (late in (0, 1)),
    next_at integer not null,
    attempts integer not null default 0,
    reason text not null,
    detail text not null default '',
    endpoint text,
    moved_at integer not null,
    id text,
    source text,
    aggregate_type text,
    aggregate_id text,
    event_key text,
    event_type text,
    event_version integer,
    payload text,
    payload_bytes blob,
    content_type text,
    encoding text,
    headers text,
    tenant text,
    format integer,
    occurred_at text,
    created_at text,
    erased_at text,
    primary key (destination, seq),
    constraint a_disabled_event_names_its_endpoint check (state <> 'disabled' or endpoint is not null)
) strict;

insert into outbox_waiting
    (destination, partition, seq, key, key_hash, state, holds_key, late, next_at, attempts, reason,
        detail, moved_at, id, source, aggregate_type, aggregate_id, event_key, event_type,
        event_version, payload, payload_bytes, content_type, encoding, headers, tenant, format,
        occurred_at, created_at, erased_at)
select destination, partition, seq, key, key_hash, state, holds_key, late, next_at, attempts, reason,
    detail, moved_at, id, source, aggregate_type, aggregate_id, event_key, event_type, event_version,
    payload, payload_bytes, content_type, encoding, headers, tenant, format, occurred_at, created_at,
    erased_at
from outbox_waiting_001;

drop table outbox_waiting_001;

create index outbox_waiting_due on outbox_waiting (destination, partition, next_at, seq)
    where state = 'retrying';

create index outbox_waiting_key on outbox_waiting (destination, partition, key, seq)
    where holds_key = 1 and state <> 'discarded';

-- For lists and counts by state; for the events of a disabled endpoint.
create index outbox_waiting_state on outbox_waiting (destination, state, seq);

create index outbox_waiting_endpoint on outbox_waiting (destination, endpoint, seq)
    where state = 'disabled';

create view outbox_status as
select o.seq, o.id, o.event_type, c.destination,
    case
        when w.state in ('retrying', 'held') then 'waiting'
        when w.state is not null then w.state
        when o.seq <= c.origin then 'before_start'
        when o.seq > c.position then 'pending'
        when s.count is null then 'settled'
        when s.other_route + s.dropped + s.erased = 0 then 'published'
        when s.other_route = s.count then 'elsewhere'
        when s.dropped = s.count then 'dropped'
        when s.erased = s.count then 'erased'
        else 'settled'
    end as status,
    coalesce(w.attempts, 0) as attempts,
    w.reason, w.detail, w.next_at,
    case when o.seq <= c.position then s.saved_at end as settled_at
from outbox o
join outbox_cursor c on c.partition = 0
left join outbox_waiting w on w.destination = c.destination and w.seq = o.seq
left join outbox_settled s
    on s.destination = c.destination and s.partition = c.partition and s.bucket = o.seq / 4096;

-- history_start: every event with this number or a higher one is still here; below it, retention has
-- deleted. file: which copy of the file publishes, as the relay found it first.
insert into outbox_meta (key, value) values
    ('schema_002_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    ('history_start', '1');
update outbox_meta set value = '2' where key = 'schema';
