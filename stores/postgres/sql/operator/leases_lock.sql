-- Locks every lease, in the order of the partitions: afterwards nobody takes or prolongs any until the transaction ends.
select 1 from {outbox_lease} l order by l.partition for update;
