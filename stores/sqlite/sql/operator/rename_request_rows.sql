update outbox_request_row set destination = ?2 where destination = ?1;
