-- What grows whenever a producer commits: the two sequences and the definitions' version.
select
    coalesce((select seq from sqlite_sequence where name = 'outbox'), 0),
    coalesce((select seq from sqlite_sequence where name = 'outbox_scheduled'), 0),
    (select value from outbox_meta where key = 'definitions_version');
