-- Who says an event of this outbox, and its type.
select coalesce(source, (select value from outbox_meta where key = 'source')), event_type
from outbox where id = ?1;
