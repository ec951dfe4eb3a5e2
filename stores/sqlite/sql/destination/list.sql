select id, definition, version, state from outbox_destination order by id;
