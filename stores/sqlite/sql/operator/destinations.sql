-- Every destination with its cursors; one row per partition.
select d.id, d.kind, d.definition, d.version, d.state, c.partition, c.position, c.origin, c.saved_at
from outbox_destination d
left join outbox_cursor c on c.destination = d.id
order by d.id, c.partition;
