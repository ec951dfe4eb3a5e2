-- Lets a destination's events flow, or wait. One statement, so that no lock outlives it.
with changed as (
    update {outbox_destination} set state = $2 where id = $1 and state <> $2 returning id
),
bumped as (
    update {outbox_meta} set value = (value::bigint + 1)::text
    where key = 'definitions_version' and exists (select from changed)
),
noted as (
    insert into {outbox_audit} (who, why, what, subject) select $3, $4, $5, $6 from changed
)
select exists (select from {outbox_destination} where id = $1);
