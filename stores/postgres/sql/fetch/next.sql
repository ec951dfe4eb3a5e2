-- Where the next row of a partition is behind a number, whoever wrote it and whatever sees it; nothing, where none is.
-- $1 partitions  $2 numbers  $3 the least of these: no older table is opened
select a.n::integer as n, next.seq
from unnest($1::smallint[], $2::bigint[]) with ordinality as a (partition, behind, n)
cross join lateral (
    select o.seq from {outbox} o
    where o.partition = a.partition and o.seq > a.behind and o.seq > $3::bigint
    order by o.seq
    limit 1
) next;
