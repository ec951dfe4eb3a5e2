update outbox_cursor set destination = ?2 where destination = ?1;
