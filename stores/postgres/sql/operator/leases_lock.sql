-- Locks every lease, in the order of the partitions, and says who owns one: afterwards nobody takes any until
-- the transaction ends. An owner whose lease ran out may not write any more.
select l.owner, l.expires_at > clock_timestamp() and l.owner is not null,
    ceil(1000000 * extract(epoch from l.expires_at - clock_timestamp()))::bigint
from {outbox_lease} l order by l.partition for update;
