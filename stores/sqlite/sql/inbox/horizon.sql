select max(cast(value as integer)) from outbox_meta where key glob 'inbox_horizon:*';
