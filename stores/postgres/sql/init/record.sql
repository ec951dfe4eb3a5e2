-- Which migrations the tables have, and since when.
insert into {outbox_meta} (key, value) values
    ('schema', ($1::bigint)::text),
    ('schema_' || lpad(($1::bigint)::text, 3, '0') || '_at', clock_timestamp()::text)
on conflict (key) do update set value = excluded.value;
