-- The newest event before a number.
select max(seq) from outbox where seq < ?1;
