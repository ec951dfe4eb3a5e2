-- The same of what waits, of what is scheduled, and of what is asked for and not done yet.
with waiting as (
    update {outbox_waiting} w set partition = {outbox_partition_of}(w.key)
    where w.partition <> {outbox_partition_of}(w.key)
    returning 1
),
scheduled as (
    update {outbox_scheduled} s
    set partition = {outbox_partition_of}(coalesce(s.key, s.aggregate_type || '/' || s.aggregate_id))
    where s.partition
        <> {outbox_partition_of}(coalesce(s.key, s.aggregate_type || '/' || s.aggregate_id))
    returning 1
)
select (select count(*) from waiting) + (select count(*) from scheduled);
