insert into outbox_cursor (destination, partition, position, origin, saved_at)
values (?1, ?2, ?3, ?3, ?4);
