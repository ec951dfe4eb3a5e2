-- Lets a partition be owned, or not. One statement: the lease's row is not locked for longer.
with changed as (
    update {outbox_lease} set paused = $2 where partition = $1 and paused <> $2
    returning partition
),
bumped as (
    update {outbox_meta} set value = (value::bigint + 1)::text
    where key = 'definitions_version' and exists (select from changed)
),
noted as (
    insert into {outbox_audit} (who, why, what, subject) select $3, $4, $5, $6 from changed
)
select exists (select from {outbox_lease} where partition = $1);
