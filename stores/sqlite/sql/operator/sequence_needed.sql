-- The sequence, and the highest number that anything in the store knows.
select coalesce((select seq from sqlite_sequence where name = 'outbox'), 0),
    max(
        coalesce((select seq from sqlite_sequence where name = 'outbox'), 0),
        coalesce((select max(seq) from outbox), 0),
        coalesce((select max(max(position, origin, replay_through)) from outbox_cursor), 0),
        coalesce((
            select max((select max(w.seq) from outbox_waiting w where w.destination = d.id))
            from outbox_destination d), 0));
