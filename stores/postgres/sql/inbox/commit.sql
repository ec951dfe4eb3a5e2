-- The first fails in a transaction that an error has ended, whose COMMIT would be a silent ROLLBACK. The last is the
-- next event's: where it follows soon, it begins without a round trip of its own. All three are one.
select 1;
commit;
begin;
