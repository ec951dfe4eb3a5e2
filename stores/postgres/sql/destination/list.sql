-- Destinations, disabled endpoints, and paused partitions, as one moment has them: `what` is version,
-- destination, disabled, or paused.
select l.what, l.id, l.text, l.number, l.state
from (
    select 'version' as what, null::text as id, null::text as text, m.value::bigint as number,
        null::text as state
    from {outbox_meta} m where m.key = 'definitions_version'
    union all
    select 'destination', d.id, d.definition, d.version, d.state from {outbox_destination} d
    union all
    select 'disabled', e.destination, e.topic, 0, null from {outbox_endpoint} e
    union all
    select 'paused', null, null, l.partition, null from {outbox_lease} l where l.paused) l
order by l.what, l.id collate "C", l.text collate "C", l.number;
