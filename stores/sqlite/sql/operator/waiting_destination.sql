-- The first destination with waiting events from a name on.
select min(destination) from outbox_waiting where destination >= ?1;
