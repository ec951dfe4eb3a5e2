-- Which migrations the tables have, and since when; and the oldest program that they serve.
insert into {outbox_meta} (key, value) values
    ('schema', ($1::bigint)::text),
    ('serves', ($2::bigint)::text),
    ('schema_' || lpad(($1::bigint)::text, 3, '0') || '_at', clock_timestamp()::text)
on conflict (key) do update set value = excluded.value;
