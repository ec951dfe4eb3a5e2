-- An event that was given up, or that waited for its endpoint, is due again: at once if it is the
-- first that holds its key, behind the first otherwise. One that does not hold its key is late, and
-- waits for nobody.
update outbox_waiting as w
set state = case
        when holds_key = 1 and exists (
            select 1 from outbox_waiting earlier
            where earlier.destination = ?1 and earlier.partition = ?2 and earlier.key = w.key
                and earlier.holds_key = 1 and earlier.state <> 'discarded'
                and earlier.seq < ?3)
        then 'parked' else 'retrying'
    end,
    late = 1 - holds_key, endpoint = null, next_at = ?4, moved_at = ?4, reason = ?6,
    attempts = case state when 'dead' then 0 else attempts end
where destination = ?1 and partition = ?2 and seq = ?3 and state = ?5;
