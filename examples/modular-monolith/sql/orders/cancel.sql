update orders set state = 'cancelled' where id = ?1;
