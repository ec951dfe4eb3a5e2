-- Who keeps old rows from being cleaned away, and the cursors' floors from rising: transactions, prepared
-- ones, and replication slots; the oldest first. Seconds are of a transaction; the age counts transactions. A number
-- that is still running holds the floors whatever database it is of, because a snapshot lists those of the whole
-- server; without one, a transaction of another database holds nothing here. elsewhere: that database.
select * from (
    select 'session ' || a.pid as what, coalesce(a.application_name, '') as name,
        coalesce(a.state, '') as state, a.usename::text as owner,
        extract(epoch from clock_timestamp() - a.xact_start)::bigint as seconds,
        case when a.datname = current_database() then greatest(age(a.backend_xid), age(a.backend_xmin))
            else age(a.backend_xid) end::bigint as age,
        0::bigint as bytes, nullif(a.datname, current_database())::text as elsewhere
    from pg_stat_activity a
    where (a.datname = current_database() or a.backend_xid is not null) and a.pid <> pg_backend_pid()
        and a.xact_start is not null and a.backend_type = 'client backend'
    union all
    select 'prepared transaction', p.gid, '', p.owner::text,
        extract(epoch from clock_timestamp() - p.prepared)::bigint, age(p.transaction)::bigint, 0,
        nullif(p.database, current_database())::text
    from pg_prepared_xacts p
    union all
    select 'replication slot', s.slot_name::text, case when s.active then 'active' else 'inactive' end, '',
        null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint,
        case when pg_is_in_recovery() then 0
            else coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0)::bigint end, null
    from pg_replication_slots s
) h
order by h.seconds desc nulls last, h.age desc nulls last
limit 20;
