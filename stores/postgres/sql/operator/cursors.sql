-- Every cursor, and where the kept history begins: nothing is retired until this transaction ends.
select c.destination, c.partition, c.base, c.position,
    {outbox_history_start}()
from {outbox_cursor} c order by c.destination, c.partition for update;
