-- What a row of the outbox must be, and which partition it belongs to, decided in one function at insert.
-- It is a trigger and not CHECKs and a generated column, because PostgreSQL reads, simplifies and sets up
-- those anew for every statement: for one row that is ten times the work of inserting it. A function is
-- compiled once per session. A refusal looks like a CHECK's: errcode 23514 and the rule's name as the
-- constraint's.
-- Rows that are vouched for are not asked: the statements of our own clients compute the partition from the key by
-- the same function, and send only what was checked before. That spares the server two fifths of what a row
-- costs beyond a plain one.

-- Header names have 1 to 128 characters out of a-z 0-9 . _ - and do not begin with postrider-; values are
-- strings without control characters; at most 64 of them, and at most 16 KiB names and values together.
-- A pattern passes the usual few; it has no bounds, which would make it slow, so it only takes what is
-- too short to break one. What has a backslash in its text is looked at header by header.
create function {outbox_headers_are_plain}(headers jsonb) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    shown text := headers::text;
    plain boolean;
begin
    if octet_length(shown) <= 136 and strpos(shown, '"postrider-') = 0
        and shown ~ '^\{(?:"[a-z0-9._-]+": "[^"\\\u0001-\u001f\u007f-\u009f]*"(?:, |\}$))+$'
    then
        return true;
    end if;
    if jsonb_typeof(headers) <> 'object' then
        return false;
    end if;
    select count(*) <= 64
        and sum(octet_length(header.key) + octet_length(header.value #>> '{}')) <= 16384
        and bool_and(jsonb_typeof(header.value) = 'string'
            and octet_length(header.key) between 1 and 128
            and not starts_with(header.key, 'postrider-'))
        and string_agg(header.key, '') !~ '[^a-z0-9._-]'
        and string_agg(header.value #>> '{}', '') !~ '[\u0001-\u001f\u007f-\u009f]'
    into plain
    from jsonb_each(headers) as header;
    return coalesce(plain, true);
end
$$;

create function {outbox_rules}() returns trigger language plpgsql as $$
declare
    rule text;
    names text := concat(new.aggregate_type, new.aggregate_id, new.event_type, new.content_type, new.key,
        new.source, new.encoding, new.tenant);
begin
    -- Without a key there is no partition, and the row is refused for the key.
    new.partition := coalesce({outbox_partition_of}(
        coalesce(new.key, new.aggregate_type || '/' || new.aggregate_id)), 0);
    -- What keeps every rule, in as few terms as can say so: each transaction sets up the expressions that it
    -- comes to anew, term by term, and that costs more than to evaluate them. Names that are short together are
    -- short each; none is empty where the least is not.
    if octet_length(names) <= 255 and names !~ '[\u0001-\u001f\u007f-\u009f]'
        and least(new.aggregate_type collate "C", new.aggregate_id, new.event_type, new.content_type,
            new.key, new.source, new.encoding, new.tenant) > ''
        and new.event_version >= 1 and new.format >= 1
        and isfinite(new.occurred_at) and isfinite(new.created_at)
        and num_nonnulls(new.payload, new.payload_bytes, new.erased_at) = 1
        and coalesce(octet_length(new.payload), octet_length(new.payload_bytes), 0) <= 1048576
        and (new.payload is null or new.payload::json is not null)
        and (new.headers = '{}' or {outbox_headers_are_plain}(new.headers))
    then
        return new;
    end if;
    -- All others, rule by rule.
    rule := case
        when octet_length(new.aggregate_type) not between 1 and 255
            then 'aggregate_type_has_1_to_255_bytes'
        when octet_length(new.aggregate_id) not between 1 and 255
            then 'aggregate_id_has_1_to_255_bytes'
        when octet_length(new.event_type) not between 1 and 255 then 'event_type_has_1_to_255_bytes'
        when octet_length(new.content_type) not between 1 and 255
            then 'content_type_has_1_to_255_bytes'
        when octet_length(new.source) not between 1 and 255 then 'source_has_1_to_255_bytes'
        when octet_length(new.encoding) not between 1 and 255 then 'encoding_has_1_to_255_bytes'
        when octet_length(new.tenant) not between 1 and 255 then 'tenant_has_1_to_255_bytes'
        when octet_length(new.key) not between 1 and 512 then 'key_has_1_to_512_bytes'
        when names ~ '[\u0001-\u001f\u007f-\u009f]' then 'names_have_no_control_characters'
        when new.event_version < 1 then 'event_version_starts_at_1'
        when new.format < 1 then 'format_starts_at_1'
        when not isfinite(new.occurred_at) or not isfinite(new.created_at) then 'times_are_finite'
        when num_nonnulls(new.payload, new.payload_bytes, new.erased_at) <> 1
            then 'payload_or_payload_bytes_or_erased'
        when octet_length(new.payload) > 1048576 or octet_length(new.payload_bytes) > 1048576
            then 'payload_has_at_most_1_mib'
        -- Never so: a payload that does not parse is refused by the cast itself.
        when new.payload is not null and new.payload::json is null then 'payload_is_json'
        when not {outbox_headers_are_plain}(new.headers) then 'headers_are_plain'
    end;
    -- What is missing is named by the column's own NOT NULL.
    if rule is null then
        return new;
    end if;
    raise exception 'the event breaks a rule of the outbox: %', rule using
        errcode = 'check_violation', constraint = rule, schema = tg_table_schema,
        table = tg_table_name,
        hint = 'docs/reference/postgres.md has the rules, with the reason of each.';
end
$$;
