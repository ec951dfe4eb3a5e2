-- $1: how many rows
insert into textbook (aggregate_type, aggregate_id, event_type, payload)
select 'order', (n % 10000)::text, 'order.placed',
    rpad('{"order":' || n || ',"total":1250,"note":"', 254, 'x') || '"}'
from generate_series(1, $1::bigint) as n;
