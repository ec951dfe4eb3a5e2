-- A cursor somewhere else, before all that its ranges stood for. What the log says of what it passes again is forgotten
-- with it, and what comes again counts, also for a destination that began behind it.
with forgotten as (
    delete from {outbox_settled} s
    where s.destination = $1 and s.partition = $2 and s.bucket >= $9
), ended as (
    delete from {outbox_range} r where r.destination = $1 and r.partition = $2
)
update {outbox_cursor}
set base = $3, position = 0, base_xmax = $4, floor = $5, pending_xids = $6, pending_floors = $7,
    target_xmin = null, target_xmax = null, target_xip = '{}', target_floor = 0, ground = $8,
    origin_through = least(origin_through, $5), saved_at = clock_timestamp()
where destination = $1 and partition = $2;
