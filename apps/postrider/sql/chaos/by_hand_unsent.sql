select number, order_id from by_hand_outbox where sent = 0 order by number;
