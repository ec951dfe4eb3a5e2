-- What is left to do in these partitions, oldest request first, the events of a destination in their order;
-- and the version of the definitions.
select m.value::bigint, o.partition, o.request, o.destination, o.seq, o.verb, o.topic, o.target
from {outbox_meta} m
left join lateral (
    select given.nth, r.partition, r.request, r.destination, r.seq, q.verb, q.topic, q.target
    from unnest($1::smallint[]) with ordinality given (partition, nth)
    cross join lateral (
        select * from {outbox_request_row} r
        where r.partition = given.partition and r.outcome is null
        order by r.request, r.destination, r.seq limit $2::bigint
    ) r
    join {outbox_request} q on q.id = r.request
) o on true
where m.key = 'definitions_version'
order by o.nth, o.request, o.destination, o.seq;
