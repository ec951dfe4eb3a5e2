-- Buckets of which nothing is left.
delete from outbox_settled
where destination in (select destination from outbox_cursor where partition = ?1)
    and partition = ?1 and bucket < ?2;
