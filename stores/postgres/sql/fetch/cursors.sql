-- All cursors of some partitions: whose, the first transaction that the base did not know, and the floor.
select partition, destination, base_xmax, floor from {outbox_cursor} where partition = any ($1);
