-- Of some events, those that an open request brings out.
select r.seq
from {outbox_request} q
join {outbox_request_row} r on r.request = q.id
where q.finished_at is null and q.verb = 'requeue'
    and r.partition = $1 and r.destination = $2 and r.outcome is null and r.seq = any ($3::bigint[]);
