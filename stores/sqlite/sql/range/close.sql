delete from outbox_range
where destination = ?1 and partition = ?2 and key_hash = ?3 and position = ?4;
