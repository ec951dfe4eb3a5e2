-- When the first event from a number on was created.
select created_at from outbox where seq >= ?1 order by seq limit 1;
