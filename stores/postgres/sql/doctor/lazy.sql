-- Roles that may write to the outbox, and the database, in whose own settings synchronous_commit is off. Sessions
-- of others, such as this one, do not have them.
select coalesce('role ' || r.rolname, 'database ' || current_database())
from pg_db_role_setting s
cross join lateral unnest(s.setconfig) c (setting)
left join pg_roles r on r.oid = s.setrole
where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
    and (s.setrole = 0 or has_any_column_privilege(r.oid, {text:outbox}::regclass, 'INSERT'))
    and lower(c.setting) in ('synchronous_commit=off', 'synchronous_commit=false',
        'synchronous_commit=no', 'synchronous_commit=0')
order by 1;
