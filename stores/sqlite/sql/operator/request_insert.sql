insert into outbox_request (verb, destination, topic, target, who, why, created_at, total)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
returning id;
