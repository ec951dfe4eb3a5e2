-- Postrider's tables, version 4: which tries of the inbox there were up to the last that came to an end. All others before
-- the present one were cut off.

alter table inbox add column failed integer not null default 0;

-- How those ended that were made before nobody knows: they are given the benefit of the doubt.
update inbox set failed = attempts where status = 'claimed';

insert into outbox_meta (key, value) values ('schema_004_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
update outbox_meta set value = '4' where key = 'schema';
