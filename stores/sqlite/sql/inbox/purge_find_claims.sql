-- Claims that nobody took again since their lease ended or they were let go: then expires_at is the moment of that, below
-- zero, or 0 where a program of before let go.
select source, event_id, handler from inbox
where status = 'claimed' and received_at <= ?1 and abs(expires_at) <= ?1
order by received_at limit ?2;
