-- What guards the tables and makes reading them cheap: triggers and indexes with a text.
select type, name, sql from sqlite_schema
where type in ('trigger', 'index') and sql is not null
    and tbl_name in (
        'outbox', 'outbox_scheduled', 'outbox_waiting', 'outbox_request', 'outbox_request_row',
        'inbox', 'inbox_tombstone')
order by type, name;
