-- Whether anything may be due, for many partitions and destinations at once: most have nothing.
-- $1 partition  $2 owner  $3 token  $4 destination
select a.n::integer,
    exists (
        select from {outbox_lease} l
        where l.partition = a.partition and l.owner = a.owner and l.token = a.token) as owned,
    (select (extract(epoch from min(w.next_at) - clock_timestamp()) * 1000000)::bigint
    from {outbox_waiting} w
    where w.destination = a.destination and w.partition = a.partition and w.state in ('retrying', 'held'))
        as next_micros
from unnest($1::smallint[], $2::text[], $3::bigint[], $4::text[]) with ordinality
    as a (partition, owner, token, destination, n)
order by a.n;
