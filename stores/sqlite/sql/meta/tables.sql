-- Which of the tables are there: to tell a fresh database from one that uses our names for its own.
select name from sqlite_schema
where type in ('table', 'view')
    and (name in ('outbox', 'inbox', 'inbox_step') or name glob 'outbox_*')
order by name;
