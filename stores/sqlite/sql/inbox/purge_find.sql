-- Rows of a handler that never said for how long its messages may come again stay until ?3, and what is behind them: as many as
-- ?2 are looked at.
select source, event_id, handler from (
    select source, event_id, handler, processed_at from inbox
    where status = 'processed' and processed_at <= ?1
    order by processed_at limit ?2)
where processed_at <= ?3 or exists (select 1 from outbox_meta where key = 'inbox_horizon:' || handler);
