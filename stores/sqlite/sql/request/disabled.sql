-- The events that wait for an endpoint, in their order.
select seq, holds_key from outbox_waiting
where destination = ?1 and endpoint = ?2 and state = 'disabled' and partition = ?3
order by seq limit ?4;
