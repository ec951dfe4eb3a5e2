-- What tables there are, for whoever mistyped one in a schema: that schema's first, where there are very many.
select n.nspname::text, c.relname::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
order by n.nspname <> $1, 1, 2 limit 1000;
