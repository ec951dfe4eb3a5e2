-- How many connected standbys have this name.
select count(*) from pg_stat_replication where application_name = $1::text;
