-- How many of them there are.
select count(*) from {outbox_waiting} w
where w.key = $1 and w.erased_at is null and num_nonnulls(w.payload, w.payload_bytes) > 0
    and not exists (select from {outbox_destination} d where d.id = w.destination);
