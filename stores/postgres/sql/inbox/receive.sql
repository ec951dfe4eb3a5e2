-- As accept, for a handler in a transaction of its own. A handler's process that was stopped between two statements must
-- not hold its event for ever; for this transaction alone, since behind a pooler the session is somebody else's afterwards.
-- One statement, because each one that is answered by itself wakes both sides once more.
select set_config('idle_in_transaction_session_timeout', '60s', true), {inbox_accept}($1, $2, $3, $4, $5) as answer;
