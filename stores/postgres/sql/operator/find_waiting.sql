select partition, seq from {outbox_waiting} where id = $1 limit 1;
