insert into charges (event_id, order_id) select event_id, order_id from charges limit 1;
