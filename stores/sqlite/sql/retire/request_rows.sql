select partition, destination, seq from outbox_request_row where request = ?1 limit ?2;
