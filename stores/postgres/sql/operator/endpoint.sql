select 1 from {outbox_endpoint} where destination = $1 and topic = $2;
