-- Who owns a lease, and for how long. An owner whose lease ran out may not write any more.
select l.owner, n.expires_at > clock_timestamp() and l.owner is not null,
    ceil(1000000 * extract(epoch from n.expires_at - clock_timestamp()))::bigint
from {outbox_lease} l join {outbox_renewal} n on n.partition = l.partition
order by l.partition;
