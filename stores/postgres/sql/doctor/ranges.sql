-- Keys of which more waits than is copied, oldest first.
select destination, key, opened_at from {outbox_range} order by opened_at, destination, key_hash;
