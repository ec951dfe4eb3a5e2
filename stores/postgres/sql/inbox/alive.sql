-- Fails in a transaction that an error has ended, whose COMMIT would be a silent ROLLBACK.
select 1;
