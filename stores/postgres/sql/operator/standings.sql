-- Every destination, and when a cursor of its was saved last.
select d.id, d.kind, d.definition, d.version, d.state, max(c.saved_at)
from {outbox_destination} d
left join {outbox_cursor} c on c.destination = d.id
group by d.id;
