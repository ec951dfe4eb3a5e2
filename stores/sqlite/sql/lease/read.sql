select partition, owner, token, expires_at, free_since, host, boot, lock_path, takeovers, cursors,
    paused
from outbox_lease order by partition;
