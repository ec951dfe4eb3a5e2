-- Why events in a state wait, oldest first, so many at most.
select reason, detail from outbox_waiting
where destination = ?1 and state = ?2 order by seq limit ?3;
