-- Postrider's tables, version 5: what keeps each relay from delivering, in its own words: a JSON array, or nothing.

alter table outbox_relay add column hindrances text not null default '';

insert into outbox_meta (key, value) values ('schema_005_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
update outbox_meta set value = '5' where key = 'schema';
