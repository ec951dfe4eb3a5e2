-- The rows of the inbox stay: that it was done is still known.
with old as (
    select source, event_id, handler from {inbox_result}
    where completed_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
    order by completed_at
    limit $2
    for update skip locked
)
delete from {inbox_result} r using old o
where r.source = o.source and r.event_id = o.event_id and r.handler = o.handler;
