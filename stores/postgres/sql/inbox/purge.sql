-- Nothing is waited for: what somebody holds is left for the next time. Where no consumer has said for how long its
-- messages may come again, $3 stands for it.
with old as (
    select source, event_id, handler from {inbox}
    where status = 'processed'
        and processed_at <= statement_timestamp() - greatest(
            $1::bigint * interval '1 microsecond',
            coalesce((select max(horizon) from {inbox_horizon}), $3::bigint * interval '1 microsecond'))
    order by processed_at
    limit $2
    for update skip locked
), results as (
    delete from {inbox_result} r using old o
    where r.source = o.source and r.event_id = o.event_id and r.handler = o.handler
), steps as (
    delete from {inbox_step} s using old o
    where s.source = o.source and s.event_id = o.event_id and s.handler = o.handler
)
delete from {inbox} i using old o
where i.source = o.source and i.event_id = o.event_id and i.handler = o.handler;
