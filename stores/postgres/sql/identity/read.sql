-- Where the store was made or adopted, and where it is.
select
    (select value from {outbox_meta} where key = 'cluster'),
    (select value from {outbox_meta} where key = 'database'),
    {outbox_cluster}(),
    (select oid::text from pg_database where datname = current_database());
