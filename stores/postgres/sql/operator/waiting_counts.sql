-- By the index outbox_waiting_state alone.
select destination, state, count(*), min(seq) from {outbox_waiting} group by destination, state;
