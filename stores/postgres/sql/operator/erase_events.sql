-- Erases some events of a key everywhere, in one statement, and asks for those that are dead, or wait for a
-- disabled endpoint, to be sent again: the owner finds nothing to send, settles them as erased, and their key
-- flows. What was discarded has nothing left. With the first batch goes the row of the audit table. What was done must not be done again: rows of the inbox stay,
-- and so do steps, with nothing as their result.
with outbox_rows as (
    select o.id, o.source from {outbox} o
    where o.partition = {outbox_partition_of}($1) and o.seq = any ($2::bigint[])
        and coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id) = $1
),
copies as (
    select w.destination, w.partition, w.seq, w.state, w.id, w.source,
        w.erased_at is null and num_nonnulls(w.payload, w.payload_bytes) > 0 as is_left
    from {outbox_destination} d
    join {outbox_waiting} w on w.destination = d.id and w.seq = any ($2::bigint[])
    where w.key = $1 and w.state <> 'discarded'
    order by w.destination, w.seq
    for update of w
),
named as (
    select id, coalesce(source, (select value from {outbox_meta} where key = 'source')) as source
    from (select id, source from outbox_rows union select id, source from copies) e
    where id is not null
),
outbox_gone as (
    update {outbox} o
    set payload = null, payload_bytes = null, headers = '{}', erased_at = clock_timestamp()
    where o.partition = {outbox_partition_of}($1) and o.seq = any ($2::bigint[])
        and coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id) = $1
        and o.erased_at is null
    returning 1
),
copies_gone as (
    update {outbox_waiting} w
    set payload = null, payload_bytes = null, headers = '{}', erased_at = clock_timestamp()
    from copies c
    where w.destination = c.destination and w.seq = c.seq and w.erased_at is null
),
results_gone as (
    delete from {inbox_result} r using named n
    where r.source = n.source and r.event_id = n.id
    returning octet_length(r.result) > 0 as is_left
),
steps_gone as (
    update {inbox_step} s set result = ''
    from named n
    where s.source = n.source and s.event_id = n.id and octet_length(s.result) > 0
    returning 1
),
begun as (
    insert into {outbox_audit} (who, why, what, subject)
    select $3, $4, 'erase', $5 where $5 is not null
    returning 1
),
request as (
    insert into {outbox_request} (verb, destination, who, why, total)
    select 'redrive', case when count(distinct c.destination) = 1 then min(c.destination) end, $3,
        $4, count(*)
    from copies c where c.state in ('dead', 'disabled')
    -- After the row that says why.
    having count(*) > 0 and (select count(*) from begun) >= 0
    returning id, total
),
parts as (
    insert into {outbox_request_row} (request, partition, destination, seq)
    select request.id, c.partition, c.destination, c.seq
    from request
    join copies c on c.state in ('dead', 'disabled')
),
noted as (
    insert into {outbox_audit} (who, why, what, subject)
    select $3, $4, 'dead redrive',
        'request ' || request.id || ': ' || request.total || ' rows (' || (
            select string_agg(d.destination || ' ' || d.count, ', ' order by d.destination)
            from (
                select c.destination, count(*) from copies c where c.state in ('dead', 'disabled')
                group by c.destination
            ) d) || ')'
    from request
)
select
    (select count(*) from outbox_gone),
    (select count(*) from copies where is_left),
    (select count(*) from results_gone where is_left) + (select count(*) from steps_gone);
