-- Who says an event, and its type, as far as this store knows: of its own outbox, or of a row that was
-- forgotten. The outbox has no index on ids: this is asked for one event that a person names.
(select coalesce(o.source, (select value from {outbox_meta} where key = 'source')), o.event_type
from {outbox} o where o.id = $1 limit 1)
union all
(select t.source, t.event_type from {inbox_tombstone} t
where t.event_id = $1 and t.handler = $2
order by t.number desc limit 1)
limit 1;
