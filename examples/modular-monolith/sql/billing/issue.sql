insert into invoices (order_id, total_cents) values (?1, ?2);
