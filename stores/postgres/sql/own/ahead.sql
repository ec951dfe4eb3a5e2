-- What waits though it was not passed: its row is pending still.
select w.seq from {outbox_waiting} w
where w.destination = $1 and w.partition = $2
    and not exists (
        select from {outbox_own_passed} p where p.destination = w.destination and p.seq = w.seq and p.id = w.id)
    and exists (select from {own:standing} where {own:seq} = w.seq and {own:id} = w.id and {own:pending})
order by w.seq
limit 1000000;
