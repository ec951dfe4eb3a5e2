select id from outbox order by seq;
