-- Dead and living versions of the cursors' rows, as far as statistics tell. Whatever was pruned is taken off again, so what
-- stays is what some snapshot still holds. Readable by all.
select pg_stat_get_dead_tuples({text:outbox_cursor}::regclass),
    pg_stat_get_live_tuples({text:outbox_cursor}::regclass);
