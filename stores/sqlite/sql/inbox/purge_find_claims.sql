-- Claims that nobody took again since their lease ended or they were let go: then expires_at is the moment of that, below
-- zero, or 0 where a program of before let go. ?3 as for what is done.
select source, event_id, handler from (
    select source, event_id, handler, max(received_at, abs(expires_at)) as ended from inbox
    where status = 'claimed' and received_at <= ?1 and abs(expires_at) <= ?1
    order by received_at limit ?2)
where ended <= ?3 or exists (select 1 from outbox_meta where key = 'inbox_horizon:' || handler);
