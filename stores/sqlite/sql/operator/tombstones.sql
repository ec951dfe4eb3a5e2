-- Forgotten rows, newest first: as many as operators made by hand.
select source, event_id, handler, event_type, 'forgotten', attempts, received_at, forgotten_at, null, 0,
    number, who, why
from inbox_tombstone
where (forgotten_at, number) < (?1, ?2)
order by forgotten_at desc, number desc;
