-- Every cursor, and where the kept history begins.
select c.destination, c.partition, c.base, c.position,
    (select value::bigint from {outbox_meta} where key = 'history_start')
from {outbox_cursor} c order by c.destination, c.partition for update;
