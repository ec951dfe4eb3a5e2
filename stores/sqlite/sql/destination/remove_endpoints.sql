delete from outbox_endpoint where destination = ?1;
