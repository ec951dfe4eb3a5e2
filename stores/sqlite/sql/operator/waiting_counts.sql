-- By the index outbox_waiting_state alone: no row is read.
select state, count(*), min(seq) from outbox_waiting where destination = ?1 group by state;
