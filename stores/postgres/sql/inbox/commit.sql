-- The first fails in a transaction that an error has ended, whose COMMIT would be a silent ROLLBACK. Both are one
-- round trip, in which the driver's own COMMIT has no place: so an empty transaction is chained, for the driver to
-- roll back without waiting.
select 1;
commit and chain;
