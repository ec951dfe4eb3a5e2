-- Where a cursor stands, and where the history that is kept begins.
select c.base, c.position,
    (select m.value::bigint from {outbox_meta} m where m.key = 'history_start')
from {outbox_cursor} c where c.destination = $1 and c.partition = $2;
