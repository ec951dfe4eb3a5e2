-- One that is disabled already is left as it is.
insert into outbox_endpoint (destination, topic, detail, disabled_at) values (?1, ?2, ?3, ?4)
on conflict (destination, topic) do nothing;
