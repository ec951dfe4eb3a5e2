-- One change of the definitions at a time. The version is no lock: owners raise it too, when an endpoint is
-- disabled, and whoever waited for them while it held it would wait in a circle.
select pg_advisory_xact_lock(hashtextextended('postrider definitions ' || {text:outbox_destination}, 0));
