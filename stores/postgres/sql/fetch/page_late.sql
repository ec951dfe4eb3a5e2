-- As fetch/page, also where a transaction was open for long: then what lies between its floor and the others'
-- is not read again, but its rows are looked for by its number. It costs a millisecond more to begin.
--
-- $1 partition  $2 base_xmax  $3 floor  $4 pending_xids  $5 pending_floors: the base
-- $6 position  $7 target_xmin  $8 target_xmax  $9 target_xip  $10 target_floor: the target; nulls: now
-- $11 rows_max  $12 payload_max: of each page
-- $13 tick_floor  $14 tick_xid: the last tick that was acknowledged
-- $15 after: no page begins before this number
-- $16 destinations: whose pages these are
-- $17 behind_max: a transaction whose floor lies further behind the others' is looked for by its number
-- $18 through: the last number that each page reads, null for none: an old target has no rows behind some number, and to
-- see that would read all that came since
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
        coalesce(a.through, 9223372036854775807) as through,
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
        $11::integer[], $12::integer[], $18::bigint[]) with ordinality as a (partition, base_xmax, floor,
        pending_xids, pending_floors, position, target_xmin, target_xmax, target_xip, target_floor, rows_max,
        payload_max, through, n)
),
ended as materialized (
    -- A transaction that still runs is not visible, and costs nothing; one that has ended is looked for
    -- from its own floor. One that was open for long is not: between its floor and the others' lies all
    -- that was read since.
    select asked.*, lows.far_lo, lows.far_xids,
        case when lows.far_xids is null then lows.far_lo else lows.near_lo end as near_lo
    from asked cross join lateral (
        select least(asked.floor, min(pending.floor)) as far_lo,
            least(asked.floor, min(pending.floor)
                filter (where pending.floor >= asked.floor - $17::bigint)) as near_lo,
            array_agg(pending.xid)
                filter (where pending.floor < asked.floor - $17::bigint) as far_xids
        from unnest(asked.pending_xids, asked.pending_floors) as pending (xid, floor)
        where base_xmax = 0 or pending.xid < xmin
            or (pending.xid < xmax and pending.xid <> all (xip))) as lows
),
late as materialized (
    -- Looked for together. As each statement looks again, only so many are worth it: behind a transaction
    -- that wrote more, everything is read from its floor on, once.
    select found.place, found.xids, found.seqs
    from (
        select array_agg(distinct ended.partition) as partitions, array_agg(distinct xid) as xids,
            min(greatest(ended.position, ended.far_lo)) as after, max(ended.near_lo) as through
        from ended cross join lateral unnest(ended.far_xids) as xid
        where ended.position < ended.near_lo
    ) as far cross join lateral {outbox_late}(far.partitions, far.xids, far.after, far.through,
        (select 8 * sum(rows_max) from asked)) as found
),
placed as materialized (
    -- Lists ascend. Most rows are behind the last of each, and to look into a list costs more than to compare.
    select ended.*, coalesce(ended.pending_xids[cardinality(ended.pending_xids)], 0) as pending_last,
        coalesce(ended.xip[cardinality(ended.xip)], 0) as xip_last,
        case
            when ended.position >= ended.near_lo then ended.position
            when exists (select from late where late.place is null)
                then greatest(ended.position, ended.far_lo)
            else ended.near_lo
        end as lo,
        those.xids as late_xids, those.seqs as late_seqs
    from ended left join lateral (
        select array_agg(first.xid order by first.seq) as xids,
            array_agg(first.seq order by first.seq) as seqs
        from (
            select row.xid, row.seq
            from late cross join lateral unnest(late.xids, late.seqs) as row (xid, seq)
            where late.place = ended.partition and row.xid = any (ended.far_xids)
                and row.seq > ended.position and row.seq <= ended.near_lo
                and row.seq > ended.pending_floors[array_position(ended.pending_xids, row.xid)]
                and (row.xid < ended.xmin
                    or (row.xid < ended.xmax and row.xid <> all (ended.xip))
                    or (ended.base_xmax = 0 and row.xid >= ended.xmax
                        and row.seq <= ended.seen_floor))
            order by row.seq
            limit ended.rows_max) as first
    ) as those on ended.far_xids is not null
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
    from (
        (select o.* from unnest(placed.late_xids, placed.late_seqs) as late (xid, seq)
        cross join lateral (
            select o.* from {outbox} o
            where o.partition = placed.partition and o.seq = late.seq and o.seq > $15::bigint
                and o.xid = late.xid
            offset 0) o
        order by o.seq
        limit placed.rows_max)
        union all
        (select o.* from {outbox} o
        where o.partition = placed.partition and o.seq > placed.lo and o.seq > $15::bigint
            and o.seq <= placed.through
            and case
                when o.xid <= placed.pending_last and o.xid = any (placed.pending_xids)
                    then o.seq > placed.pending_floors[array_position(placed.pending_xids, o.xid)]
                else o.xid >= placed.base_xmax and o.seq > placed.floor
            end
            and (o.xid < placed.xmin
                or (o.xid < placed.xmax and (o.xid > placed.xip_last or o.xid <> all (placed.xip)))
                or (placed.base_xmax = 0 and o.xid >= placed.xmax and o.seq <= placed.seen_floor))
        order by o.seq
        limit placed.rows_max)
        order by seq
        limit placed.rows_max
    ) o
    cross join lateral (
        select sum.bytes > placed.payload_max as is_cut, sum.bytes
        from (
            select least(coalesce(octet_length(o.payload), 0)::bigint
                + coalesce(octet_length(o.payload_bytes), 0)
                + case when o.headers = '{}' then 0 else octet_length(o.headers::text) end,
                2147483647)::integer as bytes
            offset 0) as sum
        offset 0) as weighed
) found;
