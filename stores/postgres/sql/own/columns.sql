-- The columns of a table: name, type (of a domain, the one beneath), how the type is written, whether it is
-- never null, whether an index makes it unique; what the user may do with the table; whether the column is computed;
-- whether policies hide rows from the user; where the user's own sessions look for names; and which store this is.
select a.attname::text, case when t.typtype = 'e' then 'enum' else t.typname::text end as type,
    format_type(a.atttypid, a.atttypmod) as written, a.attnotnull as never_null,
    exists (
        select from pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
            and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) as is_unique,
    has_table_privilege(c.oid, 'select') as may_read,
    has_table_privilege(c.oid, 'update') as may_update,
    has_table_privilege(c.oid, 'delete') as may_delete,
    a.attgenerated <> '' as is_computed,
    row_security_active(c.oid) as row_security,
    (select s.reset_val from pg_settings s where s.name = 'search_path') as search_path,
    (select m.value from {outbox_meta} m where m.key = 'store') as store
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_type declared on declared.oid = a.atttypid
join pg_type t on t.oid = coalesce(nullif(declared.typbasetype, 0), declared.oid)
where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')
order by a.attnum;
