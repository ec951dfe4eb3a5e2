update outbox_destination set state = ?2 where id = ?1 and state <> ?2;
