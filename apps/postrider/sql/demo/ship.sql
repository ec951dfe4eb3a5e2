update orders set shipped = ?2 where id = ?1;
