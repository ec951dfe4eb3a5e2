-- The partition is that of the waiting event, else the destination's own.
insert into outbox_request_row (request, partition, destination, seq)
values (?1,
    coalesce(
        (select partition from outbox_waiting where destination = ?2 and seq = ?3),
        (select min(partition) from outbox_cursor where destination = ?2), 0),
    ?2, ?3);
