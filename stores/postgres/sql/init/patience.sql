-- Whoever waits for a lock on a table has everybody queue behind him: better to try again. Two tables are locked one
-- after the other (hold_producers.sql), and producers wait for both waits together: less than a second.
select set_config('lock_timeout', '400ms', true);
