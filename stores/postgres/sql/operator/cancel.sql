-- Either it is still scheduled, or its owner has moved it into the outbox: the row's lock decides.
with taken as (
    delete from {outbox_scheduled} where id = $1 returning id
),
noted as (
    insert into {outbox_audit} (who, why, what, subject)
    select $2, $3, 'outbox cancel', $4 from taken
)
select exists (select from taken);
