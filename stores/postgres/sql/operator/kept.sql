-- The first number that is here, how many were given from there to the last one, and when the first was
-- created: by two descents of the index for each partition; and the bytes of the default table.
select min(first.seq),
    max(last.seq) + 1 - min(first.seq) - {outbox_leapt}(min(first.seq)) + {outbox_leapt}(max(last.seq)),
    (array_agg(first.created_at order by first.seq))[1],
    (select sum(pg_relation_size(t.id::oid))::bigint from {outbox_tables} t where t.lower is null)
from generate_series(0, $1::integer - 1) as p
left join lateral (
    select seq, created_at from {outbox} where partition = p::smallint order by seq limit 1
) first on true
left join lateral (
    select seq from {outbox} where partition = p::smallint order by seq desc limit 1
) last on true;
