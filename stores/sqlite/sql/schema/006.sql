-- Postrider's tables, version 6: held events are due at their time, as those are that are tried again.

drop index outbox_waiting_due;

create index outbox_waiting_due on outbox_waiting (destination, partition, next_at, seq)
    where state in ('retrying', 'held');

insert into outbox_meta (key, value) values ('schema_006_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
-- A program of before never sends what is held, and what waits behind it neither.
insert into outbox_meta (key, value) values ('serves', '6')
    on conflict (key) do update set value = excluded.value;
update outbox_meta set value = '6' where key = 'schema';
