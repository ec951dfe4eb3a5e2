select definition, version from outbox_destination where id = ?1;
