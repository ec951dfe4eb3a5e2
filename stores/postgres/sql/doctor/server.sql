-- The server's settings that the store's promises rest on, and its state.
select
    current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('wal_level'),
    current_setting('default_transaction_read_only'), pg_is_in_recovery(),
    current_setting('autovacuum'), current_setting('track_counts'),
    current_setting('synchronous_standby_names'),
    (select age(datfrozenxid)::bigint from pg_database where datname = current_database()),
    (select count(*) from pg_stat_replication),
    (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')),
    (select max(pg_wal_lsn_diff(
        case when pg_is_in_recovery() then null else pg_current_wal_lsn() end, replay_lsn))::bigint
        from pg_stat_replication),
    current_setting('server_version'), current_setting('server_encoding');
