insert into effects (event_id) values ($1)
