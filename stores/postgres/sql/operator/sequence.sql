-- The database's clock, and the highest number ever given.
select clock_timestamp(), case when is_called then last_value else last_value - 1 end from {outbox_seq};
