-- Steps of what is not done yet stay, however old: whoever takes over resumes behind them.
with old as (
    select s.source, s.event_id, s.handler, s.step
    from {inbox_step} s
    join {inbox} i using (source, event_id, handler)
    where s.completed_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
        and i.status = 'processed'
    order by s.completed_at
    limit $2
    for update of s skip locked
)
delete from {inbox_step} s using old o
where s.source = o.source and s.event_id = o.event_id and s.handler = o.handler and s.step = o.step;
