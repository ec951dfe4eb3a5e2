-- Whether an event still has its payload, and whose it is.
select erased_at is null, id, coalesce(source, (select value from outbox_meta where key = 'source'))
from outbox where seq = ?1;
