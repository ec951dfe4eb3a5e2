select true from {outbox_destination} where id = $1;
