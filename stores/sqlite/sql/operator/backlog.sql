-- The oldest events behind a number, so many at most. created_at is that of the row with min(seq).
select event_type, aggregate_type, tenant, count(*), min(seq), created_at
from (
    select seq, event_type, aggregate_type, tenant, created_at
    from outbox where seq > ?1 order by seq limit ?2)
group by event_type, aggregate_type, tenant
order by count(*) desc, min(seq);
