-- Rows with payloads of a size, without the trigger, which would take most of the time.
-- $1: the first number  $2: the last  $3: how many keys  $4: bytes of a payload
insert into {outbox} (partition, aggregate_type, aggregate_id, event_type, payload)
select {outbox_partition_of}('order/' || n % $3::bigint), 'order', (n % $3::bigint)::text, 'order.placed',
    rpad('{"order":' || n || ',"total":1250,"note":"', $4::integer - 2, 'x') || '"}'
from generate_series($1::bigint, $2::bigint) as n
order by n;
