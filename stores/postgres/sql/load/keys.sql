select key_hash, count(*) from {outbox_waiting}
where destination = $1 and partition = $2 and holds_key and state <> 'discarded'
group by key_hash;
