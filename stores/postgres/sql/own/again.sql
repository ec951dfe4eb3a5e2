-- Rows that were handed out before, because that answer may have been lost. $4 whose
-- $5 their numbers, in order
{own:head}
select server.* from server
union all
select o.* from (
    select {own:columns}
    from unnest($5::bigint[]) with ordinality as asked (seq, place)
    join {own:standing} on {own:seq} = asked.seq
    where {own:pending} and exists (select from stands)
    order by asked.place
) o;
