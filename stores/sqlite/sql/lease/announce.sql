insert into outbox_relay (owner, expires_at, current) values (?1, ?2, ?3)
on conflict (owner) do update set expires_at = excluded.expires_at, current = excluded.current;
