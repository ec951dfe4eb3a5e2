update outbox_cursor set position = ?3, saved_at = ?4 where destination = ?1 and partition = ?2;
