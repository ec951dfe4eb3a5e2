-- $1: at or below this number, rows stay in the partitions that they had, and belong there.
insert into {outbox_meta} (key, value)
values ('hash', hashtextextended('postrider', 0)::text), ('repartitioned', $1::bigint::text)
on conflict (key) do update set value = excluded.value;
