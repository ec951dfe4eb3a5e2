-- The database's clock, the highest number ever given, and how many below it were leapt over.
select clock_timestamp(), coalesce(nullif({outbox_given}(), 0), last_value - (not is_called)::integer),
    {outbox_leapt}(0)
from {outbox_seq};
