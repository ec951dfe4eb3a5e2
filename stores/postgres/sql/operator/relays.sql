select owner, current, expires_at, hindrances from {outbox_relay} where expires_at > $1 order by owner;
