-- A cursor in every partition, all at one place.
insert into {outbox_cursor} (destination, partition, base, position, base_xmax, floor, pending_xids,
    pending_floors, ground, origin, origin_through)
select $1, l.partition, $2, $3, $4, $5, $6, $7, $8, $9::text::pg_snapshot, $10
from {outbox_lease} l order by l.partition;
