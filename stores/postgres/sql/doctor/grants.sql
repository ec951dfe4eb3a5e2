-- What this user lacks, who may give events numbers of his own, and who may vouch for rows, which then pass unchecked.
select 'lacks ' || p.privilege || ' on ' || t.name
from unnest($2::text[]) as t (name)
cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) as p (privilege)
join pg_class c on c.relname = t.name
join pg_namespace n on n.oid = c.relnamespace and n.nspname = $1
where not has_table_privilege(c.oid, p.privilege)
    and not (t.name like '%\_audit' and p.privilege in ('UPDATE', 'DELETE'))
union all
select 'lacks USAGE on ' || {text:outbox_seq}
where not has_sequence_privilege({text:outbox_seq}, 'USAGE')
union all
select 'lacks EXECUTE on ' || count(*) || ' functions'
from pg_class o
join pg_class i on i.oid = {text:inbox}::regclass
join pg_proc f on f.pronamespace = o.relnamespace and f.proowner = o.relowner
    and (starts_with(f.proname, o.relname || '_') or starts_with(f.proname, i.relname || '_'))
where o.oid = {text:outbox}::regclass and not has_function_privilege(f.oid, 'EXECUTE')
having count(*) > 0
union all
-- Not a relay, nor an operator, who are to have all of the tables: who may move a cursor past an event need not give
-- it a number for that.
select 'numbered by ' || a.grantee::regrole::text
from pg_class c
cross join lateral aclexplode(c.relacl) a
where c.oid = {text:outbox}::regclass and a.privilege_type = 'INSERT'
    and a.grantee <> c.relowner and a.grantee <> 0
    and not has_table_privilege(a.grantee, {text:outbox_cursor}::regclass, 'UPDATE')
union all
select 'vouched by ' || case a.grantee when 0 then 'PUBLIC' else a.grantee::regrole::text end
from pg_class c
join pg_attribute v on v.attrelid = c.oid and v.attname = 'vouched'
cross join lateral aclexplode(v.attacl) a
where c.oid = {text:outbox}::regclass and a.privilege_type = 'INSERT' and a.grantee <> c.relowner;
