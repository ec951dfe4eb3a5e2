-- Nothing is waited for: what somebody holds is left for the next time. Where no consumer has said for how long its
-- messages may come again, $3 stands for it, and so it does for each handler of which none has: its rows stay, and what is
-- behind them, as many as $2 are looked at. So old are what was done, and claims since they ended: by the lease, or
-- because they were let go, which is written as a moment before 1970.
with horizon as (
    select statement_timestamp() - greatest(
        $1::bigint * interval '1 microsecond',
        coalesce((select max(horizon) from {inbox_horizon}), $3::bigint * interval '1 microsecond')) as before,
        statement_timestamp() - greatest($1::bigint, $3::bigint) * interval '1 microsecond' as before_silent
), done as (
    select source, event_id, handler, processed_at as ended from {inbox}
    where status = 'processed' and processed_at <= (select before from horizon)
    order by processed_at
    limit $2
    for update skip locked
), left_behind as (
    select source, event_id, handler,
        greatest(expires_at, 'epoch'::timestamptz + ('epoch'::timestamptz - expires_at)) as ended
    from {inbox}
    where processed_at is null and received_at <= (select before from horizon)
        and greatest(expires_at, 'epoch'::timestamptz + ('epoch'::timestamptz - expires_at))
            <= (select before from horizon)
    order by received_at
    limit $2 - (select count(*) from done)
    for update skip locked
), old as (
    select source, event_id, handler
    from (select * from done union all select * from left_behind) as found
    where ended <= (select before_silent from horizon)
        or exists (select from {inbox_horizon} h where h.handler = found.handler)
), results as (
    delete from {inbox_result} r using old o
    where r.source = o.source and r.event_id = o.event_id and r.handler = o.handler
), steps as (
    delete from {inbox_step} s using old o
    where s.source = o.source and s.event_id = o.event_id and s.handler = o.handler
)
delete from {inbox} i using old o
where i.source = o.source and i.event_id = o.event_id and i.handler = o.handler;
