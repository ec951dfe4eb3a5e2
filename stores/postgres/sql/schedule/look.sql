-- When the next scheduled event is due, for many partitions at once: most have none.
select a.n::integer, (select (extract(epoch from min(s.due_at) - clock_timestamp()) * 1000000)::bigint
    from {outbox_scheduled} s where s.partition = a.partition) as next_micros
from unnest($1::smallint[]) with ordinality as a (partition, n)
order by a.n;
