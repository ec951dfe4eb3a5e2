-- No row: the claim was lost.
select s.result
from {inbox} i
left join {inbox_step} s
    on s.source = i.source and s.event_id = i.event_id and s.handler = i.handler and s.step = $5
where i.source = $1 and i.event_id = $2 and i.handler = $3 and i.token = $4 and i.status = 'claimed';
