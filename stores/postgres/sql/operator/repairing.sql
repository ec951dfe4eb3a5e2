-- Lets this transaction change rows of the outbox.
select set_config('postrider.repair', 'on', true);
