-- How many rows are pending that are neither passed nor waiting, $1 at most, and when the oldest of them was written.
select count(*), min(o.written)
from (
    select {own:written} as written
    from {own:table} o
    where {own:pending}
        and not exists (select from {outbox_own_passed} p where {own:is_passed})
        and not exists (select from {outbox_waiting} w where w.id = {own:id})
    limit $1::bigint
) o;
