-- id_sum is the new sum, not an addend: SQLite's addition does not wrap.
insert into outbox_settled
    (destination, partition, bucket, id_sum, count, acked, other_route, dropped, waiting, erased,
        relay, saved_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
on conflict (destination, partition, bucket) do update set
    id_sum = excluded.id_sum,
    count = count + excluded.count,
    acked = acked + excluded.acked,
    other_route = other_route + excluded.other_route,
    dropped = dropped + excluded.dropped,
    waiting = waiting + excluded.waiting,
    erased = erased + excluded.erased,
    relay = excluded.relay,
    saved_at = excluded.saved_at;
