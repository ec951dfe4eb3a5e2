-- One part for each partition of the destination.
insert into outbox_request_row (request, partition, destination, seq)
select ?1, partition, destination, 0 from outbox_cursor where destination = ?2;
