-- Counted up to $2; what is beyond is the planner's estimate. The next one by the index of what is due.
select count.counted,
    greatest(count.counted,
        (select reltuples::bigint from pg_class where oid = {text:outbox_scheduled}::regclass)),
    (select min(next.due_at)
    from generate_series(0, $1::integer - 1) as p
    cross join lateral (
        select due_at from {outbox_scheduled} where partition = p::smallint order by due_at limit 1
    ) next)
from (
    select count(*) as counted from (select from {outbox_scheduled} limit $2) some_of_them
) count;
