-- A stretch of the inbox, newest first: claimed rows by when they came, processed ones by when they were
-- done, tombstones by when they were made. Each is one scan of an index, from its own place on.
select page.*, octet_length(r.result)
from (
    (select 2::smallint as stream, i.received_at as moment, i.source, i.event_id, i.handler,
        0::bigint as number, i.event_type, i.attempts, i.received_at, null::timestamptz as ended_at,
        case when i.expires_at > clock_timestamp()
            then ceil(1000000 * extract(epoch from i.expires_at - clock_timestamp()))::bigint
        end as remaining,
        null::text as who, null::text as why
    from {inbox} i
    where $1 and i.processed_at is null
        and (i.received_at, i.source collate "C", i.event_id, i.handler collate "C") < ($2, $3, $4, $5)
    order by i.received_at desc, i.source collate "C" desc, i.event_id desc, i.handler collate "C" desc
    limit $13)
    union all
    (select 1::smallint, i.processed_at, i.source, i.event_id, i.handler, 0, i.event_type, i.attempts,
        i.received_at, i.processed_at, null, null, null
    from {inbox} i
    where $6 and i.processed_at is not null
        and (i.processed_at, i.source collate "C", i.event_id, i.handler collate "C") < ($7, $8, $9, $10)
    order by i.processed_at desc, i.source collate "C" desc, i.event_id desc, i.handler collate "C" desc
    limit $13)
    union all
    (select 0::smallint, t.forgotten_at, t.source, t.event_id, t.handler, t.number, t.event_type, t.attempts,
        t.received_at, t.forgotten_at, null, t.who, t.why
    from {inbox_tombstone} t
    where $11 and (t.forgotten_at, t.number) < ($12, $14)
    order by t.forgotten_at desc, t.number desc
    limit $13)
) page
left join {inbox_result} r
    on page.stream = 1 and r.source = page.source and r.event_id = page.event_id
        and r.handler = page.handler
order by page.moment desc, page.stream desc, page.number desc, page.source collate "C" desc,
    page.event_id desc, page.handler collate "C" desc
limit $13;
