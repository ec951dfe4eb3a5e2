select count, acked, other_route, dropped, waiting, erased, saved_at from outbox_settled
where destination = ?1 and partition = ?2 and bucket = ?3;
