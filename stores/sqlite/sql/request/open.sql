-- What is left to do in a partition, oldest request first, the events of a destination in their
-- order. `cross` keeps the planner from beginning with the other table.
select r.request, r.destination, r.seq, q.verb, q.topic, q.target, q.relay is not null
from outbox_request_row r
cross join outbox_request q on q.id = r.request
where r.partition = ?1 and r.outcome is null
order by r.request, r.destination, r.seq limit ?2;
