insert into bare (aggregate_id, payload) values ($1, $2);
