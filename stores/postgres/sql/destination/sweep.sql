-- What is left of a destination that was removed, so many rows of each table. How many went.
with waiting as (
    delete from {outbox_waiting} w
    where w.ctid = any (array(
        select l.ctid from {outbox_waiting} l where l.destination = $1 order by l.seq limit $2::bigint))
        and not exists (select from {outbox_destination} d where d.id = $1)
    returning 1
), settled as (
    delete from {outbox_settled} s
    where s.ctid = any (array(
        select l.ctid from {outbox_settled} l where l.destination = $1
        order by l.partition, l.bucket limit $2::bigint))
        and not exists (select from {outbox_destination} d where d.id = $1)
    returning 1
)
select (select count(*) from waiting) + (select count(*) from settled);
