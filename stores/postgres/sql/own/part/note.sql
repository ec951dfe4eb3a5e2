    insert into {outbox_own_passed} as p (destination, seq, id, waits)
    select d.id, done.seq, done.id, false
    from done
    cross join (
        select min(d.id) as id from {outbox_destination} d where d.id <> 'unrouted') d
    on conflict (destination, seq) do update set id = excluded.id, waits = false
    returning p.seq, true as goes
