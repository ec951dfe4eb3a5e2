-- Who has written to the outbox and is not at an end, the oldest first.
select case when l.pid is null then 'the prepared transaction ' || coalesce(p.gid, l.virtualtransaction)
        else 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') end,
    extract(epoch from clock_timestamp() - min(coalesce(a.xact_start, p.prepared)))::bigint
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
left join pg_locks own on l.pid is null and own.pid is null and own.locktype = 'transactionid'
    and own.virtualtransaction = l.virtualtransaction
left join pg_prepared_xacts p on p.transaction = own.transactionid
where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and (l.relation = {text:outbox}::regclass or l.relation in (
        select i.inhrelid from pg_inherits i where i.inhparent = {text:outbox}::regclass))
    and l.mode in ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
        'AccessExclusiveLock')
group by 1
order by 2 desc nulls last, 1
limit 3;
