-- The newest event before a number, in some partitions.
select max(newest.seq)
from unnest($1::smallint[]) as p
cross join lateral (
    select seq from {outbox} where partition = p and seq < $2 order by seq desc limit 1
) newest;
