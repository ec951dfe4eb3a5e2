select id, state, holds_key from outbox_waiting where destination <> 'unrouted' order by seq;
