-- The highest number ever given, and the first and last that are here.
select coalesce((select seq from sqlite_sequence where name = 'outbox'), 0),
    (select min(seq) from outbox), (select max(seq) from outbox);
