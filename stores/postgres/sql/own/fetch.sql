-- What is pending and not under way, in order, of a table with numbers of its own. The first row says that
-- the lease stands, and how far the server's log is written and flushed. $4 destination  $5 numbers under way
-- $6 up to which number, or null  $7 rows  $8 bytes, as they are stored
{own:head}
select server.* from server
union all
select {own:page_columns}
from (
    select o.*, sum({own:size}) over (rows unbounded preceding) - {own:size} as "bytes before"
    from (
        select {own:used}
        from {own:table} o
        where {own:pending} and exists (select from stands)
            and {own:seq} <> all ($5::bigint[])
            and ($6::bigint is null or {own:seq} <= $6::bigint)
            and not exists (
                select from {outbox_own_passed} p
                where p.destination = $4::text and p.seq = {own:seq} and p.id = {own:id})
        order by {own:order}
        limit $7::integer
    ) o
) o
where o."bytes before" < $8::bigint;
