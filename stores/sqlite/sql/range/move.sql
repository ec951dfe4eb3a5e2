update outbox_range set position = ?5
where destination = ?1 and partition = ?2 and key_hash = ?3 and position = ?4;
