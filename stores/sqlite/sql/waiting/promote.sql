-- The first that holds the key becomes due, if it was parked.
update outbox_waiting
set state = 'retrying', next_at = ?4, moved_at = ?4
where state = 'parked' and destination = ?1
    and seq = (
        select min(seq) from outbox_waiting
        where destination = ?1 and partition = ?2 and key = ?3
            and holds_key = 1 and state <> 'discarded');
