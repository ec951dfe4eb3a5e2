select w.state, count(*) from {outbox_waiting} w where w.destination = $1 group by w.state;
