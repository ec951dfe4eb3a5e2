delete from outbox_waiting
where destination in (select destination from outbox_cursor where partition = ?2)
    and seq = ?1 and state = 'discarded';
