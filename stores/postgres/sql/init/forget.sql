-- The record of a migration that is taken back.
with forgotten as (
    delete from {outbox_meta} where key = 'schema_' || lpad(($1::bigint)::text, 3, '0') || '_at'
)
update {outbox_meta} set value = ($1::bigint - 1)::text where key = 'schema';
