select o.seq, o.id, o.source, o.aggregate_type, o.aggregate_id, o.key, o.event_type,
    o.event_version, o.payload, o.payload_bytes, o.content_type, o.encoding, o.headers, o.tenant,
    o.format, o.occurred_at, o.created_at, o.erased_at
from {outbox} o
where o.partition = $1::smallint and o.seq = any ($2::bigint[])
order by o.seq;
