-- What a stretch has that does not wait at a destination, each with its key: a range may stand for it.
select o.seq, o.event_type, o.aggregate_type, o.tenant, o.erased_at is not null,
    coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id)
from outbox o
where o.seq between ?2 and ?3
    and not exists (
        select 1 from outbox_waiting w where w.destination = ?1 and w.seq = o.seq)
order by o.seq;
