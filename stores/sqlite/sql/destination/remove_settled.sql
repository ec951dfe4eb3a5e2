delete from outbox_settled where destination = ?1;
