-- For a session of one's own: to look through a large table may take this long.
select set_config('statement_timeout', '2h', false);
