-- Claims that ended an hour ago and that nobody took over; not those that were let go.
select count(*) from (
    select from {inbox} i
    where i.processed_at is null and i.expires_at < clock_timestamp() - interval '1 hour'
        and i.expires_at > 'epoch'
    limit 10000
) stuck;
