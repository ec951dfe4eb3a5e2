-- What is due, with the lease and the next due time as the same moment has them: one row without an event
-- if nothing is.
select l.stands, n.micros, w.attempts, w.late, w.reason, w.key_hash,
    w.seq, w.id, w.source, w.aggregate_type, w.aggregate_id, w.event_key, w.event_type,
    w.event_version, w.payload, w.payload_bytes, w.content_type, w.encoding, w.headers, w.tenant,
    w.format, w.occurred_at, w.created_at, w.erased_at
from (
    select exists (
        select from {outbox_lease} l
        where l.partition = $1 and l.owner = $2 and l.token = $3) as stands) l
cross join (
    select (extract(epoch from min(w.next_at) - statement_timestamp()) * 1000000)::bigint as micros
    from {outbox_waiting} w
    where w.destination = $4 and w.partition = $1 and w.state in ('retrying', 'held')
        and w.next_at > statement_timestamp()) n
left join {outbox_due}($1, $4, $5, $6, $7, statement_timestamp()) with ordinality w on true
order by w.ordinality;
