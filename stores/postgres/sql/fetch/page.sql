-- The pages behind several cursors, by one snapshot: what is visible now, or in the target given, and was
-- not in the base.
--
-- $1 partition  $2 base_xmax  $3 floor  $4 pending_xids  $5 pending_floors: the base
-- $6 position  $7 target_xmin  $8 target_xmax  $9 target_xip  $10 target_floor: the target; nulls: now
-- $11 rows_max  $12 payload_max: of each page
-- $13 tick_floor  $14 tick_xid: the last tick that was acknowledged
-- $15 after: no page begins before this number. It adds nothing to what each page says of itself, but it is known
-- before the statement runs, so that tables with lower numbers alone are not even opened.
-- $16 destinations: whose pages these are
--
-- The first row says what the server is at: n 0, what the sequence has given in xid, where it stands by its own
-- row in seq, the token of its life in id, and as texts the snapshot, the end of what was written and of what
-- was flushed of the log. Its own row may be ahead of what was given: it compares, and never is a floor.
-- In key it names, parted by commas, the destinations that are not there: they were removed or renamed.
-- In event_type it names a table with policies of row security for this user, by the same reading: a cursor would pass
-- what they hide.
-- The others are events, by n. A row whose payload and headers together are larger than payload_max has `cut`,
-- neither of them, and their size in event_version.
with server as materialized (
    select pg_current_snapshot() as snapshot
),
now as materialized (
    select pg_snapshot_xmin(snapshot)::text::bigint as xmin,
        pg_snapshot_xmax(snapshot)::text::bigint as xmax,
        array(select running::text::bigint from pg_snapshot_xip(snapshot) as running
            order by 1) as xip
    from server
),
asked as materialized (
    select a.n::integer, a.partition, a.base_xmax, a.floor, a.position, a.rows_max, a.payload_max,
        a.pending_xids::bigint[] as pending_xids, a.pending_floors::bigint[] as pending_floors,
        coalesce(a.target_xmin, now.xmin) as xmin, coalesce(a.target_xmax, now.xmax) as xmax,
        coalesce(a.target_xip::bigint[], now.xip) as xip,
        case
            when a.target_xmin is not null then a.target_floor
            when $14::bigint < now.xmax then greatest(a.floor, $13::bigint)
            else a.floor
        end as seen_floor
    from now, unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::bigint[],
        $11::integer[], $12::integer[]) with ordinality as a (partition, base_xmax, floor, pending_xids,
        pending_floors, position, target_xmin, target_xmax, target_xip, target_floor, rows_max,
        payload_max, n)
),
placed as materialized (
    -- A transaction that still runs is not visible, and costs nothing; one that has ended is looked for
    -- from its own floor.
    -- Lists ascend. Most rows are behind the last of each, and to look into a list costs more than to compare.
    select asked.*, coalesce(pending_xids[cardinality(pending_xids)], 0) as pending_last,
        coalesce(xip[cardinality(xip)], 0) as xip_last, greatest(position, least(floor, (
        select min(pending.floor)
        from unnest(pending_xids, pending_floors) as pending (xid, floor)
        where base_xmax = 0 or pending.xid < xmin
            or (pending.xid < xmax and pending.xid <> all (xip))))) as lo
    from asked
)
select 0 as n, false as cut, {outbox_given}() as xid,
    sequence.last_value - (not sequence.is_called)::integer as seq,
    (select token from {outbox_life}) as id, server.snapshot::text as source,
    pg_current_wal_insert_lsn()::text as aggregate_type,
    pg_current_wal_flush_lsn()::text as aggregate_id,
    (select string_agg(name, ',') from unnest($16::text[]) as name
        where not exists (select from {outbox_destination} d where d.id = name)) as key,
    (select name from unnest(array[{text:outbox}, {text:outbox_waiting}, {text:outbox_scheduled}]) as name
        where row_security_active(name) limit 1) as event_type,
    null::integer as event_version, null::text as payload, null::bytea as payload_bytes,
    null::text as content_type, null::text as encoding, null::jsonb as headers, null::text as tenant,
    null::smallint as format, null::timestamptz as occurred_at, null::timestamptz as created_at,
    null::timestamptz as erased_at
from {outbox_seq} as sequence, server
union all
select placed.n, found.*
from placed cross join lateral (
    select weighed.is_cut,
        o.xid, o.seq, o.id, o.source, o.aggregate_type, o.aggregate_id, o.key, o.event_type,
        case when weighed.is_cut then weighed.bytes else o.event_version end,
        case when not weighed.is_cut then o.payload end,
        case when not weighed.is_cut then o.payload_bytes end,
        o.content_type, o.encoding, case when not weighed.is_cut then o.headers end, o.tenant,
        o.format, o.occurred_at, o.created_at,
        o.erased_at
    from {outbox} o
    cross join lateral (
        select sum.bytes > placed.payload_max as is_cut, sum.bytes
        from (
            select least(coalesce(octet_length(o.payload), 0)::bigint
                + coalesce(octet_length(o.payload_bytes), 0)
                + case when o.headers = '{}' then 0 else octet_length(o.headers::text) end,
                2147483647)::integer as bytes
            offset 0) as sum
        offset 0) as weighed
    where o.partition = placed.partition and o.seq > placed.lo and o.seq > $15::bigint
        and case
            when o.xid <= placed.pending_last and o.xid = any (placed.pending_xids)
                then o.seq > placed.pending_floors[array_position(placed.pending_xids, o.xid)]
            else o.xid >= placed.base_xmax and o.seq > placed.floor
        end
        and (o.xid < placed.xmin
            or (o.xid < placed.xmax and (o.xid > placed.xip_last or o.xid <> all (placed.xip)))
            or (placed.base_xmax = 0 and o.xid >= placed.xmax and o.seq <= placed.seen_floor))
    order by o.seq
    limit placed.rows_max
) found;
