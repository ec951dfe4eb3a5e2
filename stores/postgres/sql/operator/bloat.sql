-- How long the oldest transaction is open, in seconds; how many transactions began since the oldest xmin; and the dead
-- rows of the outbox, whatever it is divided into, and of the tables that change most. Statistics alone, and no
-- table. Of other databases those transactions count that have a number, as in a snapshot. Without pg_read_all_stats a user sees of others' sessions only that a transaction is running, by the
-- snapshot.
with held as (
    select extract(epoch from clock_timestamp() - a.xact_start) as open,
        case when a.datname = current_database() then greatest(age(a.backend_xid), age(a.backend_xmin))
            else age(a.backend_xid) end::bigint as age
    from pg_stat_activity a
    where (a.datname = current_database() or a.backend_xid is not null) and a.pid <> pg_backend_pid()
        and a.backend_type = 'client backend'
    union all
    select extract(epoch from clock_timestamp() - p.prepared), age(p.transaction)::bigint
    from pg_prepared_xacts p
    union all
    select null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint from pg_replication_slots s
    union all
    select null, pg_snapshot_xmax(s)::text::bigint - pg_snapshot_xmin(s)::text::bigint
    from pg_current_snapshot() s
)
select coalesce(max(h.open), 0)::float8, coalesce(max(h.age), 0),
    (select coalesce(sum(pg_stat_get_dead_tuples(t.id::oid)), 0)::bigint from (
        select t.id from {outbox_tables} t union select {text:outbox}::regclass) t),
    pg_stat_get_dead_tuples({text:outbox_waiting}::regclass),
    pg_stat_get_dead_tuples({text:outbox_cursor}::regclass),
    pg_stat_get_dead_tuples({text:outbox_renewal}::regclass)
from held h;
