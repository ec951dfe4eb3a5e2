-- Discarded rows of a range of numbers whose events are gone.
delete from outbox_waiting
where destination in (select destination from outbox_cursor where partition = ?3)
    and state = 'discarded' and seq between ?1 and ?2
    and not exists (select 1 from outbox o where o.seq = outbox_waiting.seq);
