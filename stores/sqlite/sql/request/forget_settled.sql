-- What the log says from a bucket on: the cursor passes that again.
delete from outbox_settled where destination = ?1 and partition = ?2 and bucket >= ?3;
