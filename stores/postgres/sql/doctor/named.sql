-- How many connected standbys have this name, and whether this user may not see how far one of them is.
select count(*), coalesce(bool_or(state is null), false) from pg_stat_replication where application_name = $1::text;
