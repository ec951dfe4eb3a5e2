insert into textbook (id, aggregate_type, aggregate_id, event_type, payload)
values (?1, ?2, ?3, ?4, ?5);
