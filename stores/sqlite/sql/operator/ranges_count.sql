-- Of how many keys more waits than is copied.
select count(*) from outbox_range where destination = ?1;
