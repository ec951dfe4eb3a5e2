select state, count(*) from outbox_waiting where destination = ?1 group by state;
