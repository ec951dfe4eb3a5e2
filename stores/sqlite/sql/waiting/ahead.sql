-- Rows beyond the saved cursor, in any state.
select seq from outbox_waiting
where destination = ?1 and partition = ?2 and seq > ?3
order by seq limit ?4;
