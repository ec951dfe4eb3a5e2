-- The first half of a tick: what the sequence has given. Its transaction has no number.
select {outbox_given}() as given, (select token from {outbox_life}) as token,
    pg_current_xact_id_if_assigned() is null as unnumbered;
