-- The same rows without the trigger, which would take most of the time: millions that are settled already.
-- $1: the first number  $2: the last  $3: how many keys
insert into {outbox} (partition, aggregate_type, aggregate_id, event_type, payload)
select {outbox_partition_of}('order/' || n % $3::bigint), 'order', (n % $3::bigint)::text, 'order.placed',
    rpad('{"order":' || n || ',"total":1250,"note":"', 254, 'x') || '"}'
from generate_series($1::bigint, $2::bigint) as n
order by n;
