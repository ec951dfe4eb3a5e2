select id, definition from {outbox_destination} order by id;
