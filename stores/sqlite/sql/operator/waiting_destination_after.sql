select min(destination) from outbox_waiting where destination > ?1;
