select definition from {outbox_destination} where id = $1;
