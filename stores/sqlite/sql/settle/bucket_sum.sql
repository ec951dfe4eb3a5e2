select id_sum from outbox_settled where destination = ?1 and partition = ?2 and bucket = ?3;
