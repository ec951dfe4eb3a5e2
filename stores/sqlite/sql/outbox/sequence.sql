-- The highest number that was ever given, also if its row is gone; 0 if none was.
select coalesce((select seq from sqlite_sequence where name = 'outbox'), 0);
