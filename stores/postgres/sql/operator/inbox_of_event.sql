-- The rows of one event, a handful, newest first; the sources by a leap of the index each.
with recursive sources as (
    (select i.source from {inbox} i order by i.source limit 1)
    union all
    select (select i.source from {inbox} i where i.source > s.source order by i.source limit 1)
    from sources s where s.source is not null
)
select page.*, octet_length(r.result)
from (
    select (case i.status when 'claimed' then 2 else 1 end)::smallint as stream,
        coalesce(i.processed_at, i.received_at) as moment, i.source, i.event_id, i.handler,
        0::bigint as number, i.event_type, i.attempts, i.received_at, i.processed_at as ended_at,
        case when i.expires_at > clock_timestamp()
            then ceil(1000000 * extract(epoch from i.expires_at - clock_timestamp()))::bigint
        end as remaining,
        null::text as who, null::text as why
    from sources s
    join {inbox} i on i.source = s.source and i.event_id = $1
    union all
    select 0::smallint, t.forgotten_at, t.source, t.event_id, t.handler, t.number, t.event_type, t.attempts,
        t.received_at, t.forgotten_at, null, t.who, t.why
    from {inbox_tombstone} t where t.event_id = $1
) page
left join {inbox_result} r
    on page.stream = 1 and r.source = page.source and r.event_id = page.event_id
        and r.handler = page.handler
order by page.moment desc, page.stream desc, page.number desc, page.source collate "C" desc,
    page.event_id desc, page.handler collate "C" desc
limit $2;
