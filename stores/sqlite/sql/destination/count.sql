select count(*) from outbox_destination;
