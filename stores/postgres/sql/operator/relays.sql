select owner, current, expires_at from {outbox_relay} where expires_at > $1 order by owner;
