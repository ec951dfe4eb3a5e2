-- Where a cursor stands, where the history that is kept begins, and the number at or below which none of its ranges stands
-- for anything, if it has any.
select c.base, c.position,
    (select m.value::bigint from {outbox_meta} m where m.key = 'history_start'),
    (select min(r.ground) from {outbox_range} r
        where r.destination = c.destination and r.partition = c.partition)
from {outbox_cursor} c where c.destination = $1 and c.partition = $2;
