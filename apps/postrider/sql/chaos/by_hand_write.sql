insert into by_hand_outbox (order_id) values (?1);
