-- The record of a migration that is taken back, and which program the tables serve then.
with forgotten as (
    delete from {outbox_meta} where key = 'schema_' || lpad(($1::bigint)::text, 3, '0') || '_at'
)
update {outbox_meta} set value = case key when 'schema' then $1::bigint - 1 else $2::bigint end::text
where key in ('schema', 'serves');
