-- Postrider's tables, version 3: where a forgotten row's tokens ended.

-- The next claim's token is greater, so that a worker that slept through both is refused. What was forgotten
-- before is given a number that no claim of it had: each counted one attempt, and marking by hand one token.
alter table inbox_tombstone add column token integer not null default 0;

update inbox_tombstone set token = attempts + 1;

insert into outbox_meta (key, value) values ('schema_003_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
update outbox_meta set value = '3' where key = 'schema';
