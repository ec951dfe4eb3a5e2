-- Locks every lease, in the order of the partitions, and says who owns one: afterwards nobody takes or prolongs any until the
-- transaction ends. Their times are locked too, so that one that was prolonged meanwhile is read anew. An owner whose
-- lease ran out may not write any more.
select l.owner, n.expires_at > clock_timestamp() and l.owner is not null,
    ceil(1000000 * extract(epoch from n.expires_at - clock_timestamp()))::bigint
from {outbox_lease} l join {outbox_renewal} n on n.partition = l.partition
order by l.partition for update;
