-- What the settled log says of a stretch of buckets.
select bucket, count, id_sum from outbox_settled
where destination = ?1 and partition = ?2 and bucket between ?3 and ?4;
