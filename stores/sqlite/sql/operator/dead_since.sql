-- Of the oldest dead letters by number, so many at most: the moment the first of them gave up.
select min(moved_at) from (
    select moved_at from outbox_waiting
    where destination = ?1 and state = 'dead' order by seq limit ?2);
