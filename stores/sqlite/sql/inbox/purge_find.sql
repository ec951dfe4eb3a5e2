select source, event_id, handler from inbox
where status = 'processed' and processed_at <= ?1
order by processed_at limit ?2;
