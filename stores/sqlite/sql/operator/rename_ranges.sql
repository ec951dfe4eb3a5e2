update outbox_range set destination = ?2 where destination = ?1;
