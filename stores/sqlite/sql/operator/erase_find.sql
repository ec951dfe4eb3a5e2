-- In a stretch of the outbox, the events of a key.
select seq from outbox
where seq between ?1 and ?2 and coalesce(key, aggregate_type || '/' || aggregate_id) = ?3
order by seq;
