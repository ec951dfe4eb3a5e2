-- The first steps of some rows that have results, by the row's place in the question.
select k.ordinality, s.step
from unnest($1::text[], $2::uuid[], $3::text[]) with ordinality as k (source, event_id, handler)
cross join lateral (
    select s.step from {inbox_step} s
    where s.source = k.source and s.event_id = k.event_id and s.handler = k.handler
    order by s.step limit $4
) s
order by k.ordinality, s.step;
