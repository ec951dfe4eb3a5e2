-- What grows whenever a producer commits, or an operator asks for something: the sequences and the
-- definitions' version.
select
    coalesce((select seq from sqlite_sequence where name = 'outbox'), 0),
    coalesce((select seq from sqlite_sequence where name = 'outbox_scheduled'), 0),
    coalesce((select seq from sqlite_sequence where name = 'outbox_request'), 0),
    coalesce((select seq from sqlite_sequence where name = 'outbox_audit'), 0),
    (select value from outbox_meta where key = 'definitions_version');
