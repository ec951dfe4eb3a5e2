-- Later events of a key that were due, or that wait for a disabled endpoint, are parked behind one
-- that has entered and holds the key.
update outbox_waiting
set state = 'parked'
where destination = ?1 and partition = ?2 and seq > ?3 and state in ('retrying', 'held', 'disabled')
    and holds_key = 1 and state <> 'discarded'
    and key = (select key from outbox_waiting where destination = ?1 and seq = ?3);
