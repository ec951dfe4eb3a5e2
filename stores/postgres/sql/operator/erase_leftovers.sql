-- Copies of a key's events that a removal which was cut off has left, so many at once: they are nobody's, and go. How
-- many went, and how many of them had something left to erase. In the order of `destination/sweep`, which may be at
-- work: so nobody waits in a circle.
with gone as (
    delete from {outbox_waiting} w
    where w.ctid = any (array(
        select l.ctid from {outbox_waiting} l
        where l.key = $1 and not exists (select from {outbox_destination} d where d.id = l.destination)
        limit $2::bigint))
        and not exists (select from {outbox_destination} d where d.id = w.destination)
    returning w.erased_at is null and num_nonnulls(w.payload, w.payload_bytes) > 0 as is_left
)
select count(*), count(*) filter (where is_left) from gone;
