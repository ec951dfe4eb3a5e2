insert into sqlite_sequence (name, seq) values ('outbox', ?1);
