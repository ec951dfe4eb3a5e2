-- From here on the log is kept for the reader of this name.
select pg_create_logical_replication_slot($1, 'pgoutput')
