-- A handler's process that was stopped between two statements must not hold its event for ever. For this
-- transaction alone: behind a pooler the session is somebody else's afterwards.
set local idle_in_transaction_session_timeout = '60s';
