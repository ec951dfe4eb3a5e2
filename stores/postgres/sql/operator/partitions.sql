select partition, owner, host, expires_at, takeovers, paused from {outbox_lease} order by partition;
