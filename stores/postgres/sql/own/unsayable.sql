-- What a status column cannot say, of what is to be written there or looked for: no label of its type, or longer than
-- it takes. $1 schema, $2 table, $3 the column, $4 the values.
select v.value
from unnest($4::text[]) v (value)
cross join pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attname = $3
join pg_type declared on declared.oid = a.atttypid
join pg_type t on t.oid = coalesce(nullif(declared.typbasetype, 0), declared.oid)
where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')
    and case when t.typtype = 'e' then
            not exists (select from pg_enum e where e.enumtypid = t.oid and e.enumlabel = v.value)
        when t.typname in ('varchar', 'bpchar') then
            length(v.value) > nullif(greatest(a.atttypmod, declared.typtypmod), -1) - 4
        else false end;
