-- The first event that was created at or after a moment. Asked after the snapshot of `destination/now`.
select min(o.seq) from {outbox} o where o.created_at >= $1;
