-- Where the history that is kept begins. Retirement raises it under the same row's lock: it does not go on
-- before this transaction has ended, and then finds the cursors it adds.
select m.value::bigint from {outbox_meta} m where m.key = 'history_start' for share;
