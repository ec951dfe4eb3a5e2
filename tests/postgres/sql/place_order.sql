insert into orders (event_id) values ($1::text::uuid);
