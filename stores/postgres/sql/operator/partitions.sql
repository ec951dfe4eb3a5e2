select l.partition, l.owner, l.host, n.expires_at, l.takeovers, l.paused
from {outbox_lease} l join {outbox_renewal} n on n.partition = l.partition
order by l.partition;
