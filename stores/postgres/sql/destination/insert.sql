insert into {outbox_destination} (id, kind, definition, version) values ($1, $2, $3, 1);
