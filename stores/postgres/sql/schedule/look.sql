-- When the next scheduled event is due, for many partitions at once: most have none.
-- $1 partition  $2 owner  $3 token
select a.n::integer,
    exists (
        select from {outbox_lease} l
        where l.partition = a.partition and l.owner = a.owner and l.token = a.token) as owned,
    (select (extract(epoch from min(s.due_at) - clock_timestamp()) * 1000000)::bigint
    from {outbox_scheduled} s where s.partition = a.partition) as next_micros
from unnest($1::smallint[], $2::text[], $3::bigint[]) with ordinality
    as a (partition, owner, token, n)
order by a.n;
