-- In a stretch of numbers, the first event that was created at or after a moment.
select {outbox_first_since}($1, $2, $3);
