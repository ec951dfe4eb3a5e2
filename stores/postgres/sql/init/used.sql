-- Whether there ever was an event, or one is scheduled.
select is_called or exists (select from {outbox_scheduled}) from {outbox_seq};
