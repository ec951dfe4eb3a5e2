-- A handler's process that was stopped between two statements must not hold its event for ever.
set idle_in_transaction_session_timeout = '60s';
