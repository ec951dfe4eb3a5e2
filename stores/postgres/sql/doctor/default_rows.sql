-- Rows that no table was made for, as far as it is worth counting.
select count(*) from (
    select from {outbox} o
    where o.tableoid = (select t.id::oid from {outbox_tables} t where t.lower is null)
        and o.seq >= coalesce((select max(t.upper) from {outbox_tables} t), 0)
    limit 10000
) rows;
