insert into orders (id, total_cents) values (?1, ?2);
