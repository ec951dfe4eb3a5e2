select coalesce(string_agg(definition::text, E'\n'), '') as definitions from {outbox_destination};
