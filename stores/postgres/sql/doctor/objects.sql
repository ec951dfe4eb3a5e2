-- The guards of the tables: triggers that are on, and indexes that are valid.
select 'trigger ' || t.tgname::text || ' on ' || c.relname::text, t.tgenabled in ('O', 'A')
from pg_trigger t
join pg_class c on c.oid = t.tgrelid
where t.tgrelid in ({text:outbox}::regclass, {text:outbox_scheduled}::regclass) and not t.tgisinternal
union all
select 'index ' || c.relname::text, i.indisvalid and i.indisready
from pg_index i
join pg_class c on c.oid = i.indexrelid
join pg_class r on r.oid = i.indrelid
join pg_namespace n on n.oid = r.relnamespace
where n.nspname = $1 and r.relname = any ($2::text[]);
