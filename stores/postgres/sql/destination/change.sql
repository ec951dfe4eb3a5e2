update {outbox_destination} set kind = $2, definition = $3, version = version + 1 where id = $1;
