-- The version of the definitions, and what is there.
select (select m.value::bigint from {outbox_meta} m where m.key = 'definitions_version') as version,
    d.id, d.definition
from (select) as always left join {outbox_destination} d on true
order by d.id collate "C";
