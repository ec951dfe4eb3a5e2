select key from outbox_waiting
where destination = ?1 and partition = ?2 and seq = ?3 and state <> 'discarded';
