-- The first event from a number on, in the order of the numbers, and when it was created.
select first.seq, first.created_at
from generate_series(0, $1::integer - 1) as p
cross join lateral (
    select seq, created_at from {outbox}
    where partition = p::smallint and seq >= $2 order by seq limit 1
) first
order by first.seq limit 1;
