-- How far the destination's slowest partition has come.
select min(position) from outbox_cursor where destination = ?1;
