-- What the sequence has given, what anything in the store knows, where the transaction counter is, and the
-- highest that a cursor knows of it. The first number of the log's last bucket was given as well. What waits of an
-- application's own table has that table's numbers, which say nothing of the sequence.
select
    (select coalesce(nullif({outbox_given}(), 0), last_value - (not is_called)::integer)
        from {outbox_seq}),
    greatest(
        (select max(o.seq)
            from {outbox_lease} l
            cross join lateral (
                select o.seq from {outbox} o where o.partition = l.partition
                order by o.seq desc limit 1
            ) o),
        (select max(greatest(floor, position, target_floor, replay_through)) from {outbox_cursor}),
        (select max((
            select max(w.seq) from {outbox_waiting} w where w.destination = d.id))
            from {outbox_destination} d
            where not exists (select from {outbox_own_passed})),
        (select max(s.bucket) * 4096 from {outbox_settled} s)),
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    (select max(greatest(base_xmax, target_xmax)) from {outbox_cursor});
