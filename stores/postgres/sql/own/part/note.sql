    insert into {outbox_own_passed} (destination, seq, waits)
    select d.id, done.seq, false
    from done
    cross join (
        select min(d.id) as id from {outbox_destination} d where d.id <> 'unrouted') d
    on conflict (destination, seq) do update set waits = false
    returning seq
