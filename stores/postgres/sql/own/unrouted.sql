-- What no route of the destination matches: it is the built-in one's. $4 the built-in destination
-- $5 numbers under way  $6 rows
{own:head}
select server.* from server
union all
select o.* from (
    select {own:columns}
    from {outbox_own_passed} p
    join {own:standing} on {own:seq} = p.seq and {own:id} = p.id
    where p.destination <> $4::text and not p.waits and {own:pending}
        and exists (select from stands) and {own:seq} <> all ($5::bigint[])
        and not exists (
            select from {outbox_own_passed} q
            where q.destination = $4::text and q.seq = p.seq and q.id = p.id)
    order by p.seq
    limit $6::integer
) o;
