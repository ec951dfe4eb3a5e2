-- The events that rows of requests are about: of `redrive` as they wait, of `requeue` as they were committed.
select given.nth, w.seq, w.id, w.source, w.aggregate_type, w.aggregate_id, w.event_key, w.event_type,
    w.event_version, w.payload, w.payload_bytes, w.content_type, w.encoding, w.headers, w.tenant,
    w.format, w.occurred_at, w.created_at, w.erased_at
from unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) given (nth, verb, destination, seq)
join {outbox_waiting} w on w.destination = given.destination and w.seq = given.seq
where given.verb = 'redrive'
union all
select given.nth, o.seq, o.id, o.source, o.aggregate_type, o.aggregate_id, o.key, o.event_type,
    o.event_version, o.payload, o.payload_bytes, o.content_type, o.encoding, o.headers, o.tenant,
    o.format, o.occurred_at, o.created_at, o.erased_at
from unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) given (nth, verb, destination, seq)
join {outbox} o on o.partition = $1::smallint and o.seq = given.seq
where given.verb = 'requeue';
