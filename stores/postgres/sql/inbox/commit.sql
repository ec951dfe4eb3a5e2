-- The first fails in a transaction that an error has ended, whose COMMIT would be a silent ROLLBACK; the chain fails
-- where a handler has ended its transaction by itself, whose COMMIT would be a mere warning. What is chained is rolled
-- back by what follows (`next`): its time is from before this commit.
select 1;
commit and chain;
