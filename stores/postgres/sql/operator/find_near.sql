-- An event by its id among some numbers: the rows of all partitions there are read.
select partition, seq from {outbox}
where partition = any ($1) and seq between $2 and $3 and id = $4 limit 1;
