-- The last bucket that the log knows.
select max(bucket) from outbox_settled where destination = ?1 and partition = ?2;
