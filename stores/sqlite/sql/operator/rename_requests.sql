update outbox_request set destination = ?2 where destination = ?1;
