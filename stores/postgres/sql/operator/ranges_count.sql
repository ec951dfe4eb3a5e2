-- Of how many keys more waits than is copied.
select destination, count(*) from {outbox_range} group by destination;
