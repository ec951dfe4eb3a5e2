insert into charges (event_id, order_id) values (?1, ?2);
