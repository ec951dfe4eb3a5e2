select id, state, holds_key, aggregate_id from outbox_waiting
where destination <> 'unrouted' order by seq;
