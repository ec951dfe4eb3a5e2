insert into {outbox_lease} (partition) select generate_series(0, $partitions$ - 1);

insert into {outbox_renewal} (partition) select partition from {outbox_lease};

insert into {outbox_flush} default values;

insert into {outbox_life} (token) values (gen_random_uuid());

insert into {outbox_meta} (key, value) values
    ('store', gen_random_uuid()::text),
    ('source', '/' || current_database()),
    ('partitions', '$partitions$'),
    ('layout', '$layout$'),
    ('hash', hashtextextended('postrider', 0)::text),
    ('table_rows', '$table_rows$'),
    ('cluster', {outbox_cluster}()),
    ('database', (select oid::text from pg_database where datname = current_database())),
    ('history_start', '0'),
    ('definitions_version', '0');
