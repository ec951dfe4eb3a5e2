insert into charges (event_id, key) values (?1, ?2)
