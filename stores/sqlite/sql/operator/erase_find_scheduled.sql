-- Scheduled events of a key behind a number.
select seq from outbox_scheduled
where seq > ?1 and coalesce(key, aggregate_type || '/' || aggregate_id) = ?2
order by seq;
