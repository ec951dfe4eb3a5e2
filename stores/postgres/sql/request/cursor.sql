-- Where a cursor stands, where the history that is kept begins, and before which number its ranges lie, if it has any.
select c.base, c.position,
    (select m.value::bigint from {outbox_meta} m where m.key = 'history_start'),
    (select min(r.ground) + 1 from {outbox_range} r where r.destination = $1 and r.partition = $2)
from {outbox_cursor} c where c.destination = $1 and c.partition = $2;
