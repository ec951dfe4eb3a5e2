-- The partition of each row's key, where it is another than the row's; null where it is the same, and for what `repair
-- partitions` left where it was. $1 keys  $2 partitions of the rows  $3 their numbers
select case when key_partition <> a.partition
    and a.seq > coalesce((select value::bigint from {outbox_meta} where key = 'repartitioned'), 0)
    then key_partition end
from unnest($1::text[], $2::smallint[], $3::bigint[]) with ordinality a (key, partition, seq, n)
cross join lateral (select {outbox_partition_of}(a.key) as key_partition) k
order by a.n;
