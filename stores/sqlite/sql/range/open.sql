-- A key that has a range already keeps it as it is.
insert into outbox_range (destination, partition, key_hash, key, position, version, opened_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (destination, partition, key_hash) do nothing;
