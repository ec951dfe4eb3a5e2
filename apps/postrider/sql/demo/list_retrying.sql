select id from outbox_waiting where state in ('retrying', 'held') order by seq;
