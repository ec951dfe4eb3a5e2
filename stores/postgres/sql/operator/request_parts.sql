-- A request whose parts are the destination's partitions, and its row of the audit table.
with request as (
    insert into {outbox_request} (verb, destination, topic, target, who, why, total)
    select $1, $2, $3, $4, $5, $6, count(*) from {outbox_cursor} c where c.destination = $2
    having count(*) > 0
    returning id
),
parts as (
    insert into {outbox_request_row} (request, partition, destination, seq)
    select request.id, c.partition, c.destination, 0
    from request
    join {outbox_cursor} c on c.destination = $2
),
noted as (
    insert into {outbox_audit} (who, why, what, subject)
    select $5, $6, $7, 'request ' || request.id || ': ' || $8 from request
)
select id from request;
