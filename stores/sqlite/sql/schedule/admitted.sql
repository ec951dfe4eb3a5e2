-- The rows that schedule/admit.sql just copied, in the same transaction.
delete from outbox_scheduled
where seq in (
    select seq from outbox_scheduled where due_ms <= ?1 order by due_ms, seq limit ?2);
