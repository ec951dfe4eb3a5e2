-- Whether a range stands for an event of a key, if the cursor has passed that and it does not wait.
select 1 from outbox_range
where destination = ?1 and partition = ?2 and key_hash = ?3 and position < ?4;
