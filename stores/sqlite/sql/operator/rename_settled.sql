update outbox_settled set destination = ?2 where destination = ?1;
