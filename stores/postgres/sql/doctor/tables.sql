-- Our tables as the statistics have them: rows that are dead and alive, and tables that nobody vacuums.
select s.relname::text, s.n_dead_tup, s.n_live_tup,
    coalesce('autovacuum_enabled=false' = any (c.reloptions)
        or 'autovacuum_enabled=off' = any (c.reloptions), false)
from pg_stat_user_tables s
join pg_class c on c.oid = s.relid
where s.schemaname = $1 and (s.relname = any ($2::text[]) or s.relid in (
    select t.id::oid from {outbox_tables} t))
order by s.relname;
