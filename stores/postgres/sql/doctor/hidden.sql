-- How many sessions of this database this user may not look into. Whoever is in pg_read_all_stats may look into all.
select count(*) from pg_stat_activity a
where a.datname = current_database() and a.usesysid is not null
    and not pg_has_role(current_user, 'pg_read_all_stats', 'usage')
    and not pg_has_role(a.usesysid, 'usage');
