-- The log as it is after everything of the bucket that is not elsewhere waits, or will.
insert into outbox_settled
    (destination, partition, bucket, count, id_sum, acked, other_route, dropped, waiting, erased,
        relay, saved_at)
values (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, 'reconcile', ?10)
on conflict (destination, partition, bucket) do update set
    count = excluded.count, id_sum = excluded.id_sum, acked = 0,
    other_route = excluded.other_route, dropped = excluded.dropped, waiting = excluded.waiting,
    erased = excluded.erased, relay = excluded.relay, saved_at = excluded.saved_at;
