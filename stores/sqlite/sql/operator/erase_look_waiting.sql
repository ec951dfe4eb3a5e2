-- The same of its copies: only those that still have something to erase, and those that are dead.
select erased_at is null and (payload is not null or payload_bytes is not null), state = 'dead', id,
    coalesce(source, (select value from outbox_meta where key = 'source'))
from outbox_waiting where destination = ?1 and seq = ?2;
