-- Waits for what is just settled: afterwards nothing is written for this destination any more.
select c.partition from {outbox_cursor} c where c.destination = $1 order by c.partition for update;
