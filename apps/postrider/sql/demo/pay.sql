update orders set paid = ?2 where id = ?1;
