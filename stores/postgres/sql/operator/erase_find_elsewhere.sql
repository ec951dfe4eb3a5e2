-- Copies of a key's events that wait in any state, and those that are scheduled.
select
    array(select distinct w.seq from {outbox_waiting} w where w.key = $1),
    array(
        select s.seq from {outbox_scheduled} s
        where s.partition = {outbox_partition_of}($1)
            and coalesce(s.key, s.aggregate_type || '/' || s.aggregate_id) = $1
            and s.erased_at is null);
