update outbox_waiting set destination = ?2 where destination = ?1;
