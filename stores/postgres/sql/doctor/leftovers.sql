-- Of which removed destinations rows are left, and how many wait, as far as it is worth counting. Their names are
-- found by one descent of an index each.
with recursive waits as (
    select (select min(w.destination) from {outbox_waiting} w) as name
    union all
    select (select min(w.destination) from {outbox_waiting} w where w.destination > n.name)
    from waits n where n.name is not null
), logs as (
    select (select min(s.destination) from {outbox_settled} s) as name
    union all
    select (select min(s.destination) from {outbox_settled} s where s.destination > n.name)
    from logs n where n.name is not null
)
select l.name, (
    select count(*) from (select from {outbox_waiting} w where w.destination = l.name limit 10000) r)
from (select name from waits union select name from logs) l
where l.name is not null and not exists (select from {outbox_destination} d where d.id = l.name)
order by l.name limit 20;
