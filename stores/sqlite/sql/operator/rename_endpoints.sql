update outbox_endpoint set destination = ?2 where destination = ?1;
