-- Asked again of each row in the transaction that deletes it: what was seen before may have changed.
delete from outbox
where seq = ?1 and seq <= ?2
    and cast(round((julianday(created_at) - 2440587.5) * 86400000) as integer) < ?3
    and not exists (
        select 1 from outbox_cursor c
        cross join outbox_waiting w on w.destination = c.destination and w.seq = ?1
        where c.partition = ?4 and w.state <> 'discarded');
