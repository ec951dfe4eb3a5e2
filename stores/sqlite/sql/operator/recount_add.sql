-- The log with what it has missed of a bucket, which waits now, or is nobody's.
update outbox_settled set
    count = ?4, id_sum = ?5, other_route = other_route + ?6, dropped = dropped + ?7,
    waiting = waiting + ?8, erased = erased + ?9, relay = 'reconcile', saved_at = ?10
where destination = ?1 and partition = ?2 and bucket = ?3;
