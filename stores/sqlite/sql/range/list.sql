-- What of keys is not copied, because so much of them waits.
select key_hash, key, position, version from outbox_range
where destination = ?1 and partition = ?2
order by opened_at, key_hash;
