update sqlite_sequence set seq = ?1 where name = 'outbox';
