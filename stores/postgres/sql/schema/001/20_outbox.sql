-- What the application says, append-only. `xid` stands before `seq`: defaults are evaluated in the
-- order of the columns, so a transaction has its number before it draws from the sequence, and the proof of
-- the cursor's floor rests on that. Producers set neither. CACHE 1, for the same reason.
create sequence {outbox_seq} as bigint cache 1;

create table {outbox} (
    xid bigint not null default pg_current_xact_id()::text::bigint,
    seq bigint not null default nextval({text:outbox_seq}),
    partition smallint not null generated always as
        ({outbox_partition_of}(coalesce(key, aggregate_type || '/' || aggregate_id))) stored,
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
    constraint aggregate_type_has_1_to_255_bytes check (octet_length(aggregate_type) between 1 and 255),
    constraint aggregate_id_has_1_to_255_bytes check (octet_length(aggregate_id) between 1 and 255),
    constraint event_type_has_1_to_255_bytes check (octet_length(event_type) between 1 and 255),
    constraint content_type_has_1_to_255_bytes check (octet_length(content_type) between 1 and 255),
    constraint source_has_1_to_255_bytes check (octet_length(source) between 1 and 255),
    constraint encoding_has_1_to_255_bytes check (octet_length(encoding) between 1 and 255),
    constraint tenant_has_1_to_255_bytes check (octet_length(tenant) between 1 and 255),
    constraint key_has_1_to_512_bytes check (octet_length(key) between 1 and 512),
    -- One pattern over all of them: a pattern is most of what the checks of a row cost.
    constraint names_have_no_control_characters check (
        (aggregate_type || aggregate_id || event_type || content_type
            || coalesce(key, '') || coalesce(source, '') || coalesce(encoding, '')
            || coalesce(tenant, ''))
        !~ '[\u0001-\u001f\u007f-\u009f]'),
    constraint event_version_starts_at_1 check (event_version >= 1),
    constraint payload_or_payload_bytes_or_erased check (
        num_nonnulls(payload, payload_bytes) = case when erased_at is null then 1 else 0 end),
    -- A payload that does not parse is refused by the cast itself.
    constraint payload_is_json check (payload::json is not null or payload is null),
    constraint payload_has_at_most_1_mib check (
        coalesce(octet_length(payload), octet_length(payload_bytes), 0) <= 1048576),
    constraint headers_are_plain check (
        headers = '{}' or {outbox_headers_are_plain}(headers)),
    constraint headers_have_at_most_16_kib check (
        headers = '{}' or octet_length(headers::text) <= 16384),
    constraint format_starts_at_1 check (format >= 1),
    constraint times_are_finite check (
        isfinite(occurred_at) and isfinite(created_at))
)$by_range$;

alter sequence {outbox_seq} owned by {outbox}.seq;

create index {name:outbox_partition_seq} on {outbox} (partition, seq);

-- Finds the rows of a transaction that was open for long. Almost free: the numbers ascend with the rows.
create index {name:outbox_xid} on {outbox} using brin (xid) with (autosummarize = on, pages_per_range = 32);

create function {outbox_append_only}() returns trigger language plpgsql as $$
begin
    if current_setting('postrider.repair', true) = 'on' then
        return new;
    end if;
    if old.erased_at is null and new.erased_at is not null
        and new.payload is null and new.payload_bytes is null
        and new.headers in (old.headers, '{}'::jsonb)
        and (new.xid, new.seq, new.id, new.aggregate_type, new.aggregate_id, new.event_type,
            new.event_version, new.content_type, new.format, new.occurred_at, new.created_at)
            = (old.xid, old.seq, old.id, old.aggregate_type, old.aggregate_id, old.event_type,
            old.event_version, old.content_type, old.format, old.occurred_at, old.created_at)
        and (new.source, new.key, new.encoding, new.tenant)
            is not distinct from (old.source, old.key, old.encoding, old.tenant)
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
    partition smallint not null generated always as
        ({outbox_partition_of}(coalesce(key, aggregate_type || '/' || aggregate_id))) stored,
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
    due_at timestamptz not null,
    constraint aggregate_type_has_1_to_255_bytes check (octet_length(aggregate_type) between 1 and 255),
    constraint aggregate_id_has_1_to_255_bytes check (octet_length(aggregate_id) between 1 and 255),
    constraint event_type_has_1_to_255_bytes check (octet_length(event_type) between 1 and 255),
    constraint content_type_has_1_to_255_bytes check (octet_length(content_type) between 1 and 255),
    constraint source_has_1_to_255_bytes check (octet_length(source) between 1 and 255),
    constraint encoding_has_1_to_255_bytes check (octet_length(encoding) between 1 and 255),
    constraint tenant_has_1_to_255_bytes check (octet_length(tenant) between 1 and 255),
    constraint key_has_1_to_512_bytes check (octet_length(key) between 1 and 512),
    -- One pattern over all of them: a pattern is most of what the checks of a row cost.
    constraint names_have_no_control_characters check (
        (aggregate_type || aggregate_id || event_type || content_type
            || coalesce(key, '') || coalesce(source, '') || coalesce(encoding, '')
            || coalesce(tenant, ''))
        !~ '[\u0001-\u001f\u007f-\u009f]'),
    constraint event_version_starts_at_1 check (event_version >= 1),
    constraint payload_or_payload_bytes_or_erased check (
        num_nonnulls(payload, payload_bytes) = case when erased_at is null then 1 else 0 end),
    -- A payload that does not parse is refused by the cast itself.
    constraint payload_is_json check (payload::json is not null or payload is null),
    constraint payload_has_at_most_1_mib check (
        coalesce(octet_length(payload), octet_length(payload_bytes), 0) <= 1048576),
    constraint headers_are_plain check (
        headers = '{}' or {outbox_headers_are_plain}(headers)),
    constraint headers_have_at_most_16_kib check (
        headers = '{}' or octet_length(headers::text) <= 16384),
    constraint format_starts_at_1 check (format >= 1),
    constraint times_are_finite check (
        isfinite(occurred_at) and isfinite(created_at)),
    constraint due_at_is_finite check (isfinite(due_at)),
    unique (id)
);

create index {name:outbox_scheduled_due} on {outbox_scheduled} (partition, due_at, seq);
