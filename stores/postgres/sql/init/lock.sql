-- One migrator at a time; the other waits, and finds that nothing is left to do.
select pg_advisory_xact_lock(hashtextextended('postrider migrate ' || $1, 0));
