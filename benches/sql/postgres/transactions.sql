select xact_commit + xact_rollback from pg_stat_database where datname = current_database();
