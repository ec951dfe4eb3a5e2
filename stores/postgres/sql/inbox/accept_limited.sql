-- A handler's process that was stopped between two statements must not hold its event for ever: the limit is
-- this transaction's alone, since behind a pooler the session is somebody else's afterwards.
select {inbox_accept}($1::text, $2::text::uuid, $3::text, $4::text, decode($5::text, 'hex')) as answer,
    set_config('idle_in_transaction_session_timeout', '60s', true) as limited;
