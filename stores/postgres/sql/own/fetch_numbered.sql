-- The same of a table without numbers: rows get theirs in the order in which they are read first. $6: only
-- rows of transactions before this one, or null.
{own:head},
known as materialized (
    select n.seq as "postrider number", n.at as "postrider at", {own:used}
    from {outbox_own_number} n
    join {own:table} o on {own:is_number}
    where {own:pending} and exists (select from stands) and n.seq <> all ($5::bigint[])
        and not exists (
            select from {outbox_own_passed} p
            where p.destination = $4::text and p.seq = n.seq and p.id = {own:id})
    order by n.seq
    limit $7::integer
), fresh as materialized (
    select o.*
    from (
        select o.*, sum({own:size}) over (rows unbounded preceding) - {own:size} as "bytes before"
        from (
            select {own:used}
            from {own:table} o
            where {own:pending} and exists (select from stands)
                and not exists (
                    select from {outbox_own_number} n where n.id = {own:name})
                and ($6::bigint is null
                    or age(o.xmin) > age(($6::bigint % 4294967296)::text::xid))
            order by {own:order}
            limit $7::integer
        ) o
    ) o
    where o."bytes before" < $8::bigint
), given as (
    insert into {outbox_own_number} (id, seq)
    select f.name, nextval({text:outbox_seq})
    from (select {own:name} as name from fresh o) f
    on conflict (id) do nothing
    returning id, seq, at
), page as (
    select o.* from known o
    union all
    select g.seq, g.at, {own:used} from given g join fresh o on {own:name} = g.id
)
select server.* from server
union all
select o.* from (select {own:page_columns} from page o order by o."postrider number" limit $7::integer) o;
