-- What a loop that polls asks each time.
select seq, aggregate_id, event_type, payload from outbox where seq > ?1 order by seq limit 1000;
