-- The reader is gone, and the log need not be kept for it.
select pg_drop_replication_slot($1) from pg_replication_slots where slot_name = $1 and not active
