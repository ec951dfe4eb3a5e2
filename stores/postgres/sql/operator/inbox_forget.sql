-- Forgets a row that nobody is at, and leaves a tombstone with the token that the next claim goes on
-- from. The row is locked first, and its lease looked at after: one statement, one decision.
with found as (
    select * from {inbox}
    where source = $1 and event_id = $2 and handler = $3
    for update
),
judged as materialized (
    select f.*, case when f.status = 'claimed' and f.expires_at > clock_timestamp()
        then ceil(1000000 * extract(epoch from f.expires_at - clock_timestamp()))::bigint
    end as remaining
    from found f
),
gone as (
    delete from {inbox} i using judged j
    where i.source = j.source and i.event_id = j.event_id and i.handler = j.handler
        and j.remaining is null
    returning i.status
),
results as (
    delete from {inbox_result} r using judged j
    where r.source = j.source and r.event_id = j.event_id and r.handler = j.handler
        and j.remaining is null
),
tombstone as (
    insert into {inbox_tombstone} (source, event_id, handler, event_type, was, token, attempts,
        received_at, processed_at, who, why)
    select j.source, j.event_id, j.handler, j.event_type, j.status, j.token, j.attempts,
        j.received_at, j.processed_at, $4, $5
    from judged j where j.remaining is null
),
noted as (
    insert into {outbox_audit} (who, why, what, subject)
    select $4, $5, 'inbox forget', $6 || ' (was ' || gone.status || ')' from gone
)
select remaining from judged;
