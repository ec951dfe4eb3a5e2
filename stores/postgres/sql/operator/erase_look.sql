-- What is left to erase of some events of a key: in the outbox, of the copies that wait, and of results
-- in the inbox.
with outbox_rows as (
    select o.id, o.source, o.erased_at from {outbox} o
    where o.partition = {outbox_partition_of}($1) and o.seq = any ($2::bigint[])
        and coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id) = $1
),
copies as (
    select w.id, w.source, w.erased_at, num_nonnulls(w.payload, w.payload_bytes) as payloads
    from {outbox_destination} d
    join {outbox_waiting} w on w.destination = d.id and w.seq = any ($2::bigint[])
    where w.key = $1 and w.state <> 'discarded'
),
named as (
    select id, coalesce(source, (select value from {outbox_meta} where key = 'source')) as source
    from (select id, source from outbox_rows union select id, source from copies) e
    where id is not null
)
select
    (select count(*) from outbox_rows where erased_at is null),
    (select count(*) from copies where erased_at is null and payloads > 0),
    (select count(*) from named n
        join {inbox_result} r on r.source = n.source and r.event_id = n.id
        where octet_length(r.result) > 0)
    + (select count(*) from named n
        join {inbox_step} s on s.source = n.source and s.event_id = n.id
        where octet_length(s.result) > 0);
