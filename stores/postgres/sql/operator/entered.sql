-- Whether an event is in the outbox. There is no index on ids; this is asked when it came too late.
select exists (select from {outbox} where id = $1);
