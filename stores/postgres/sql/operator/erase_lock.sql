-- Held until the batch is erased: no settlement of the key's partition is under way meanwhile. Settlements lock
-- these rows before any other as well, so nobody waits in a circle.
select c.destination from {outbox_cursor} c
where c.partition = {outbox_partition_of}($1)
order by c.destination collate "C"
for no key update;
