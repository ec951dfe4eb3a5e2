-- Every cursor, where the kept history begins (nothing is retired until this transaction ends), and the number at or below
-- which none of the cursor's ranges stands for anything, if it has any.
select c.destination, c.partition, c.base, c.position,
    {outbox_history_start}(),
    (select min(r.ground) from {outbox_range} r
        where r.destination = c.destination and r.partition = c.partition)
from {outbox_cursor} c order by c.destination, c.partition for update;
