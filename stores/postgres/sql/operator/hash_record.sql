insert into {outbox_meta} (key, value) values ('hash', hashtextextended('postrider', 0)::text)
on conflict (key) do update set value = excluded.value;
