-- For the rest of this transaction, in milliseconds.
select set_config('statement_timeout', $1, true);
