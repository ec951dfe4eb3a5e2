-- Claims whose lease ended before a moment, so many at most. 0 or less: let go on purpose.
select count(*) from (
    select 1 from inbox
    where status = 'claimed' and expires_at between 1 and ?1 limit ?2);
