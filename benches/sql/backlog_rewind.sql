-- Puts every cursor back to the beginning, as if nothing had been delivered yet.
update outbox_cursor set position = origin;
delete from outbox_settled;
delete from outbox_waiting;
delete from outbox_range;
