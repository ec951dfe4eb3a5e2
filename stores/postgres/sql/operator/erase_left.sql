-- Copies of a key's events that entered `waiting` while their events were erased.
select array(
    select distinct w.seq from {outbox_waiting} w
    where w.key = $1 and w.erased_at is null and num_nonnulls(w.payload, w.payload_bytes) > 0
    order by w.seq);
