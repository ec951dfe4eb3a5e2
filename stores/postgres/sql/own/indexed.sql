-- Whether an index holds only what is pending. $1 schema, $2 table, $3 the column that says so.
select exists (
    select from pg_index i
    join pg_class c on c.oid = i.indrelid
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attname = $3
    where n.nspname = $1 and c.relname = $2 and i.indisvalid and i.indpred is not null
        and exists (
            select from pg_depend d
            where d.classid = 'pg_class'::regclass and d.objid = i.indexrelid
                and d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
                and d.refobjsubid = a.attnum));
