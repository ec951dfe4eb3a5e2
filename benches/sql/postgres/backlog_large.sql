-- $1: how many rows  $2: bytes of a payload
insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
select 'order', n::text, 'order.placed', rpad('{"order":' || n || ',"note":"', $2::integer - 2, 'x') || '"}'
from generate_series(1, $1::bigint) as n
order by n;
