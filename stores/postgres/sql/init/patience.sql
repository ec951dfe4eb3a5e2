-- Whoever waits for a lock on a table has everybody queue behind him: better to try again.
select set_config('lock_timeout', '900ms', true);
