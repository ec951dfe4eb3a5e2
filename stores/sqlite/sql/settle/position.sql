select position, replay_through from outbox_cursor where destination = ?1 and partition = ?2;
