insert into orders (key, event_id) values (?1, ?2)
