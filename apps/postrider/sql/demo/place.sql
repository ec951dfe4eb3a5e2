insert into orders (id, customer, cents, placed) values (?1, ?2, ?3, ?4);
