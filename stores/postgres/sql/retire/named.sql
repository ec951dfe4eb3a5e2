-- The numbers of events by their ids. There is no index on ids: they are looked for from the oldest on,
-- between the numbers that may be old enough.
select o.seq from (
    select * from {outbox} where partition = $1::smallint and seq > $2::bigint
    order by seq limit $4::bigint
) o
where o.id = any ($3::uuid[])
order by o.seq;
