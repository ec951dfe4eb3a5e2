-- For producers that have no other order of their own on a key: whoever takes the locks of its keys before
-- its events draw numbers commits them in the order of the numbers. The locks end with the transaction.
-- Keys are taken in one order, so that two transactions cannot wait for each other within one call.
create function {outbox_hold_keys}(keys text[]) returns integer
language sql volatile parallel unsafe as $$
    select count(pg_advisory_xact_lock(lock.id))::integer
    from (
        select distinct hashtextextended({text:outbox} || '/' || key, 1) as id
        from unnest(keys) as key order by id
    ) as lock
$$;
