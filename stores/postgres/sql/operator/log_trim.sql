-- What the log says of a bucket of which a cursor covers less than before: the outcomes are not known event by
-- event, and are cut off at the end.
with was as (
    select s.acked, s.other_route, s.dropped, s.waiting, s.erased from {outbox_settled} s
    where s.destination = $1 and s.partition = $2 and s.bucket = $3
), shares as (
    select least($4, acked) as acked,
        least($4, acked + other_route) as other_route,
        least($4, acked + other_route + dropped) as dropped,
        least($4, acked + other_route + dropped + waiting) as waiting
    from was
), gone as (
    delete from {outbox_settled} s
    where s.destination = $1 and s.partition = $2 and s.bucket = $3 and $4::bigint = 0
)
update {outbox_settled} s
set count = $4::bigint, id_sum = $5::bigint, acked = h.acked, other_route = h.other_route - h.acked,
    dropped = h.dropped - h.other_route, waiting = h.waiting - h.dropped, erased = $4 - h.waiting
from shares h
where s.destination = $1 and s.partition = $2 and s.bucket = $3 and $4::bigint > 0;
