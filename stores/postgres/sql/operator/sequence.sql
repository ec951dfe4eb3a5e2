-- The database's clock, the highest number ever given, and how many below it were leapt over.
select clock_timestamp(), case when is_called then last_value else last_value - 1 end, {outbox_leapt}(0)
from {outbox_seq};
