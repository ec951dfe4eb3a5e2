select id from outbox_waiting where state = 'retrying' order by seq;
