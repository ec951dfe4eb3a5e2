-- In a stretch of numbers, the events of a key, and where the next stretch begins: behind what was
-- retired nothing is looked through. A key is in one partition.
select
    array(
        select o.seq from {outbox} o
        where o.partition = {outbox_partition_of}($3) and o.seq between $1 and $2
            and coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id) = $3
        order by o.seq),
    (select o.seq from {outbox} o
        where o.partition = {outbox_partition_of}($3) and o.seq > $2
        order by o.seq limit 1);
