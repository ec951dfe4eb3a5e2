-- Postrider's tables, version 1: outbox, relay bookkeeping, inbox.
-- Every table is STRICT, so that a column holds what its type says. Reasons for each column stand in
-- docs/reference/sqlite.md. Times that decide something are integers: milliseconds since 1970 of the
-- database's clock. Times that people read are RFC 3339 text.
-- `*[^ -~ -􏿿]*` finds a control character: one that is neither between space and tilde nor between
-- U+00A0 (no-break space) and U+10FFFF, the last. The bounds stand there themselves, since char()
-- would be computed anew for every row.

-- Facts about the store as a whole: schema (the version of these tables), store (a random id),
-- source (the default of outbox.source), partitions (P), definitions_version.
create table outbox_meta (
    key text primary key not null,
    value text not null
) strict, without rowid;

-- What the application says, in commit order, append-only.
create table outbox (
    seq integer primary key autoincrement,
    id text not null unique
        default (printf('%08x-%04x-7%03x-%04x-%012x',
        cast(round((julianday('now') - 2440587.5) * 86400000) as integer) >> 16,
        cast(round((julianday('now') - 2440587.5) * 86400000) as integer) & 65535,
        random() & 4095, (random() & 16383) | 32768, random() & 281474976710655)),
    source text,
    aggregate_type text not null,
    aggregate_id text not null,
    key text,
    event_type text not null,
    event_version integer not null default 1,
    payload text,
    payload_bytes blob,
    content_type text not null default 'application/json',
    encoding text,
    headers text not null default '{}',
    tenant text,
    format integer not null default 1,
    occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    erased_at text,
    constraint seq_is_positive check (seq > 0),
    constraint id_is_a_lowercase_uuid
        check (length(id) = 36 and id not glob '*[^0-9a-f-]*'
            and id glob '????????-????-????-????-????????????'
            and length(replace(id, '-', '')) = 32),
    constraint source_has_1_to_255_bytes
        check (source is null or length(cast(source as blob)) between 1 and 255),
    constraint source_has_no_control_characters
        check (source is null or (source not glob '*[^ -~ -􏿿]*'
            and instr(cast(source as blob), x'00') = 0)),
    constraint aggregate_type_has_1_to_255_bytes
        check (length(cast(aggregate_type as blob)) between 1 and 255),
    constraint aggregate_type_has_no_control_characters
        check ((aggregate_type not glob '*[^ -~ -􏿿]*'
            and instr(cast(aggregate_type as blob), x'00') = 0)),
    constraint aggregate_id_has_1_to_255_bytes
        check (length(cast(aggregate_id as blob)) between 1 and 255),
    constraint aggregate_id_has_no_control_characters
        check ((aggregate_id not glob '*[^ -~ -􏿿]*'
            and instr(cast(aggregate_id as blob), x'00') = 0)),
    constraint key_has_1_to_512_bytes
        check (key is null or length(cast(key as blob)) between 1 and 512),
    constraint key_has_no_control_characters
        check (key is null or (key not glob '*[^ -~ -􏿿]*'
            and instr(cast(key as blob), x'00') = 0)),
    constraint event_type_has_1_to_255_bytes
        check (length(cast(event_type as blob)) between 1 and 255),
    constraint event_type_has_no_control_characters
        check ((event_type not glob '*[^ -~ -􏿿]*'
            and instr(cast(event_type as blob), x'00') = 0)),
    constraint event_version_starts_at_1 check (event_version between 1 and 2147483647),
    constraint payload_or_payload_bytes_or_erased
        check ((payload is not null) + (payload_bytes is not null) = (erased_at is null)),
    constraint payload_is_json
        check (payload is null
            or (json_valid(payload) and instr(cast(payload as blob), x'00') = 0)),
    constraint payload_has_at_most_1_mib
        check (coalesce(length(cast(payload as blob)), length(payload_bytes), 0) <= 1048576),
    constraint content_type_has_1_to_255_bytes
        check (length(cast(content_type as blob)) between 1 and 255),
    constraint content_type_has_no_control_characters
        check ((content_type not glob '*[^ -~ -􏿿]*'
            and instr(cast(content_type as blob), x'00') = 0)),
    constraint encoding_has_1_to_255_bytes
        check (encoding is null or length(cast(encoding as blob)) between 1 and 255),
    constraint encoding_has_no_control_characters
        check (encoding is null or (encoding not glob '*[^ -~ -􏿿]*'
            and instr(cast(encoding as blob), x'00') = 0)),
    constraint headers_are_a_json_object
        check (json_valid(headers) and json_type(headers) = 'object'),
    constraint headers_have_at_most_16_kib
        check (length(cast(headers as blob)) <= 16384),
    constraint tenant_has_1_to_255_bytes
        check (tenant is null or length(cast(tenant as blob)) between 1 and 255),
    constraint tenant_has_no_control_characters
        check (tenant is null or (tenant not glob '*[^ -~ -􏿿]*'
            and instr(cast(tenant as blob), x'00') = 0)),
    constraint format_starts_at_1 check (format >= 1),
    constraint occurred_at_is_an_rfc_3339_time
        check ((substr(occurred_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(occurred_at, -2) glob '[0-9]Z'
                or substr(occurred_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(occurred_at) is not null
            and date(substr(occurred_at, 1, 10), '+0 days') = substr(occurred_at, 1, 10)
            and substr(occurred_at, 12, 2) < '24')),
    constraint created_at_is_an_rfc_3339_time
        check ((substr(created_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(created_at, -2) glob '[0-9]Z'
                or substr(created_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(created_at) is not null
            and date(substr(created_at, 1, 10), '+0 days') = substr(created_at, 1, 10)
            and substr(created_at, 12, 2) < '24')),
    constraint erased_at_is_an_rfc_3339_time
        check (erased_at is null or (substr(erased_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(erased_at, -2) glob '[0-9]Z'
                or substr(erased_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(erased_at) is not null
            and date(substr(erased_at, 1, 10), '+0 days') = substr(erased_at, 1, 10)
            and substr(erased_at, 12, 2) < '24'))
) strict;

create trigger outbox_seq_is_assigned before insert on outbox
when new.seq <> -1
begin
    select raise(abort, 'outbox.seq is assigned by the store: leave it out of the INSERT');
end;

create trigger outbox_headers_are_plain before insert on outbox
when new.headers <> '{}'
begin
    select raise(abort, 'outbox.headers: at most 64 of them; names have 1 to 128 characters out of a-z 0-9 . _ - and do not begin with postrider-; values are strings without control characters')
    where (select count(*) from json_each(new.headers)) > 64
        or exists (
            select 1 from json_each(new.headers) as header
            where header.key = '' or length(header.key) > 128
                or header.key glob '*[^a-z0-9._-]*' or header.key glob 'postrider-*'
                or header.type <> 'text'
                or header.atom glob '*[^ -~ -􏿿]*'
                or instr(cast(header.atom as blob), x'00') > 0);
end;

create trigger outbox_is_append_only before update on outbox
when not (old.erased_at is null and new.erased_at is not null
        and new.payload is null and new.payload_bytes is null
        and new.seq is old.seq and new.id is old.id
        and (new.headers is old.headers or new.headers = '{}')
        and new.source is old.source
        and new.aggregate_type is old.aggregate_type
        and new.aggregate_id is old.aggregate_id
        and new.key is old.key
        and new.event_type is old.event_type
        and new.event_version is old.event_version
        and new.content_type is old.content_type
        and new.encoding is old.encoding
        and new.tenant is old.tenant
        and new.format is old.format
        and new.occurred_at is old.occurred_at
        and new.created_at is old.created_at)
begin
    select raise(abort, 'outbox is append-only: the only change is to erase, with payload and payload_bytes set to null and erased_at to a time');
end;

-- Events for later. The relay moves them into the outbox in the order (due, seq).
create table outbox_scheduled (
    seq integer primary key autoincrement,
    id text not null unique
        default (printf('%08x-%04x-7%03x-%04x-%012x',
        cast(round((julianday('now') - 2440587.5) * 86400000) as integer) >> 16,
        cast(round((julianday('now') - 2440587.5) * 86400000) as integer) & 65535,
        random() & 4095, (random() & 16383) | 32768, random() & 281474976710655)),
    source text,
    aggregate_type text not null,
    aggregate_id text not null,
    key text,
    event_type text not null,
    event_version integer not null default 1,
    payload text,
    payload_bytes blob,
    content_type text not null default 'application/json',
    encoding text,
    headers text not null default '{}',
    tenant text,
    format integer not null default 1,
    occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    erased_at text,
    due_at text not null,
    -- The same moment in milliseconds, so that times of different offsets sort as what they are.
    due_ms integer generated always as
        (cast(round((julianday(due_at) - 2440587.5) * 86400000) as integer)) virtual,
    constraint seq_is_positive check (seq > 0),
    constraint id_is_a_lowercase_uuid
        check (length(id) = 36 and id not glob '*[^0-9a-f-]*'
            and id glob '????????-????-????-????-????????????'
            and length(replace(id, '-', '')) = 32),
    constraint source_has_1_to_255_bytes
        check (source is null or length(cast(source as blob)) between 1 and 255),
    constraint source_has_no_control_characters
        check (source is null or (source not glob '*[^ -~ -􏿿]*'
            and instr(cast(source as blob), x'00') = 0)),
    constraint aggregate_type_has_1_to_255_bytes
        check (length(cast(aggregate_type as blob)) between 1 and 255),
    constraint aggregate_type_has_no_control_characters
        check ((aggregate_type not glob '*[^ -~ -􏿿]*'
            and instr(cast(aggregate_type as blob), x'00') = 0)),
    constraint aggregate_id_has_1_to_255_bytes
        check (length(cast(aggregate_id as blob)) between 1 and 255),
    constraint aggregate_id_has_no_control_characters
        check ((aggregate_id not glob '*[^ -~ -􏿿]*'
            and instr(cast(aggregate_id as blob), x'00') = 0)),
    constraint key_has_1_to_512_bytes
        check (key is null or length(cast(key as blob)) between 1 and 512),
    constraint key_has_no_control_characters
        check (key is null or (key not glob '*[^ -~ -􏿿]*'
            and instr(cast(key as blob), x'00') = 0)),
    constraint event_type_has_1_to_255_bytes
        check (length(cast(event_type as blob)) between 1 and 255),
    constraint event_type_has_no_control_characters
        check ((event_type not glob '*[^ -~ -􏿿]*'
            and instr(cast(event_type as blob), x'00') = 0)),
    constraint event_version_starts_at_1 check (event_version between 1 and 2147483647),
    constraint payload_or_payload_bytes_or_erased
        check ((payload is not null) + (payload_bytes is not null) = (erased_at is null)),
    constraint payload_is_json
        check (payload is null
            or (json_valid(payload) and instr(cast(payload as blob), x'00') = 0)),
    constraint payload_has_at_most_1_mib
        check (coalesce(length(cast(payload as blob)), length(payload_bytes), 0) <= 1048576),
    constraint content_type_has_1_to_255_bytes
        check (length(cast(content_type as blob)) between 1 and 255),
    constraint content_type_has_no_control_characters
        check ((content_type not glob '*[^ -~ -􏿿]*'
            and instr(cast(content_type as blob), x'00') = 0)),
    constraint encoding_has_1_to_255_bytes
        check (encoding is null or length(cast(encoding as blob)) between 1 and 255),
    constraint encoding_has_no_control_characters
        check (encoding is null or (encoding not glob '*[^ -~ -􏿿]*'
            and instr(cast(encoding as blob), x'00') = 0)),
    constraint headers_are_a_json_object
        check (json_valid(headers) and json_type(headers) = 'object'),
    constraint headers_have_at_most_16_kib
        check (length(cast(headers as blob)) <= 16384),
    constraint tenant_has_1_to_255_bytes
        check (tenant is null or length(cast(tenant as blob)) between 1 and 255),
    constraint tenant_has_no_control_characters
        check (tenant is null or (tenant not glob '*[^ -~ -􏿿]*'
            and instr(cast(tenant as blob), x'00') = 0)),
    constraint format_starts_at_1 check (format >= 1),
    constraint occurred_at_is_an_rfc_3339_time
        check ((substr(occurred_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(occurred_at, -2) glob '[0-9]Z'
                or substr(occurred_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(occurred_at) is not null
            and date(substr(occurred_at, 1, 10), '+0 days') = substr(occurred_at, 1, 10)
            and substr(occurred_at, 12, 2) < '24')),
    constraint created_at_is_an_rfc_3339_time
        check ((substr(created_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(created_at, -2) glob '[0-9]Z'
                or substr(created_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(created_at) is not null
            and date(substr(created_at, 1, 10), '+0 days') = substr(created_at, 1, 10)
            and substr(created_at, 12, 2) < '24')),
    constraint erased_at_is_an_rfc_3339_time
        check (erased_at is null or (substr(erased_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(erased_at, -2) glob '[0-9]Z'
                or substr(erased_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(erased_at) is not null
            and date(substr(erased_at, 1, 10), '+0 days') = substr(erased_at, 1, 10)
            and substr(erased_at, 12, 2) < '24')),
    constraint due_at_is_an_rfc_3339_time
        check ((substr(due_at, 1, 19)
                glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'
            and (substr(due_at, -2) glob '[0-9]Z'
                or substr(due_at, -7) glob '[0-9][+-][0-2][0-9]:[0-5][0-9]')
            and julianday(due_at) is not null
            and date(substr(due_at, 1, 10), '+0 days') = substr(due_at, 1, 10)
            and substr(due_at, 12, 2) < '24'))
) strict;

create index outbox_scheduled_due on outbox_scheduled (due_ms, seq);

create trigger outbox_scheduled_headers_are_plain before insert on outbox_scheduled
when new.headers <> '{}'
begin
    select raise(abort, 'outbox_scheduled.headers: at most 64 of them; names have 1 to 128 characters out of a-z 0-9 . _ - and do not begin with postrider-; values are strings without control characters')
    where (select count(*) from json_each(new.headers)) > 64
        or exists (
            select 1 from json_each(new.headers) as header
            where header.key = '' or length(header.key) > 128
                or header.key glob '*[^a-z0-9._-]*' or header.key glob 'postrider-*'
                or header.type <> 'text'
                or header.atom glob '*[^ -~ -􏿿]*'
                or instr(cast(header.atom as blob), x'00') > 0);
end;

-- Where events go. The definition is JSON in a fixed order of fields.
create table outbox_destination (
    id text primary key not null,
    kind text not null,
    definition text not null check (json_valid(definition)),
    version integer not null check (version >= 1),
    state text not null default 'active' check (state in ('active', 'paused'))
) strict, without rowid;

-- How far a destination is settled. Everything up to origin is from before it was added.
create table outbox_cursor (
    destination text not null,
    partition integer not null,
    position integer not null check (position >= 0),
    origin integer not null,
    saved_at integer not null,
    primary key (destination, partition)
) strict, without rowid;

-- Which relay owns a partition. The token grows at every acquisition and never goes back.
create table outbox_lease (
    partition integer primary key not null,
    owner text,
    token integer not null default 0,
    expires_at integer not null default 0,
    free_since integer not null default 0,
    host text,
    boot text,
    lock_path text,
    takeovers integer not null default 0,
    cursors integer not null default 0
) strict;

-- Which relays are alive, and whether their definitions are the store's.
create table outbox_relay (
    owner text primary key not null,
    expires_at integer not null,
    current integer not null check (current in (0, 1))
) strict, without rowid;

-- Events that left the window unacknowledged or have a counted failure. The event's columns are a
-- copy without checks: what could not be read must still be kept.
create table outbox_waiting (
    destination text not null,
    partition integer not null,
    seq integer not null,
    key text not null,
    key_hash integer not null,
    state text not null check (state in ('retrying', 'parked', 'held', 'dead', 'discarded')),
    holds_key integer not null check (holds_key in (0, 1)),
    late integer not null default 0 check (late in (0, 1)),
    next_at integer not null,
    attempts integer not null default 0,
    reason text not null,
    detail text not null default '',
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
    primary key (destination, seq)
) strict;

create index outbox_waiting_due on outbox_waiting (destination, partition, next_at, seq)
    where state = 'retrying';

create index outbox_waiting_key on outbox_waiting (destination, partition, key, seq)
    where holds_key = 1 and state <> 'discarded';

-- What became of the events a cursor passed, by 4,096 sequence numbers. id_sum is the wrapping sum
-- of the ids' digests, so that a recount of the outbox can prove that nothing was skipped.
create table outbox_settled (
    destination text not null,
    partition integer not null,
    bucket integer not null,
    count integer not null,
    id_sum integer not null,
    acked integer not null,
    other_route integer not null,
    dropped integer not null,
    waiting integer not null,
    erased integer not null,
    relay text not null,
    saved_at integer not null,
    primary key (destination, partition, bucket)
) strict, without rowid;

-- Which (source, event id, handler) was done, or is being done.
create table inbox (
    source text not null,
    event_id text not null,
    handler text not null,
    event_type text not null,
    status text not null check (status in ('claimed', 'processed')),
    payload_hash blob not null check (length(payload_hash) = 32),
    token integer not null default 0,
    received_at integer not null,
    expires_at integer,
    processed_at integer,
    result blob,
    attempts integer not null default 1,
    primary key (source, event_id, handler),
    constraint a_claim_expires check ((status = 'claimed') = (expires_at is not null)),
    constraint a_processed_row_says_when
        check ((status = 'processed') = (processed_at is not null)),
    constraint result_has_at_most_1_mib check (result is null or length(result) <= 1048576)
) strict, without rowid;

create index inbox_processed on inbox (processed_at) where status = 'processed';

-- Results of external steps, so that a takeover resumes instead of repeating.
create table inbox_step (
    source text not null,
    event_id text not null,
    handler text not null,
    step text not null,
    result blob not null check (length(result) <= 1048576),
    completed_at integer not null,
    primary key (source, event_id, handler, step)
) strict, without rowid;

-- What became of each event at each destination. `published` is said only where the settled log
-- knows that everything its bucket passed was acknowledged; in a bucket where some events belonged
-- elsewhere, were dropped, or were erased, it says `settled`.
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

insert into outbox_lease (partition) values (0);
insert into outbox_meta (key, value) values
    ('schema', '1'),
    ('schema_001_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    ('store', lower(hex(randomblob(16)))),
    ('source', '/outbox'),
    ('partitions', '1'),
    ('definitions_version', '0');
