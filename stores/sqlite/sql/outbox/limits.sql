select coalesce(group_concat(definition, char(10)), '') from outbox_destination;
