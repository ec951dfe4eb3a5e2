insert into shipments (event_id, shipped_id) values (?1, ?2)
