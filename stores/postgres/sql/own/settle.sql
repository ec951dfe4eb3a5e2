-- A settlement: the waiting events and endpoints as everywhere, and the marks on the application's rows, in
-- one statement under the lease. $4 whether it must be on the disk  $5 the parts, as outbox_settle takes them
-- $6, $7 rows that are done, by number and id: a number may be another row's by now
-- $8, $9, $10, $11 rows that are passed without being done: destination, number, id, whether it waits
-- $12 rows that neither destination's routes match: the first to be asked is asked again
-- $13 its number, where one that comes late must not undo what came after it
-- $14 where the user's own sessions look for names: the application's triggers find what they always find
-- Says which of the rows that are done are pending still, and whether it was not for want of a lock.
with patience as materialized (
    -- Whoever holds one of the rows is not waited for while the lease is locked.
    select set_config('lock_timeout', '1s', true)
), fenced as materialized (
    select {outbox_fence}($1::smallint, $2::text, $3::bigint) from patience
), entering as materialized (
    select distinct (w ->> 'seq')::bigint as seq
    from jsonb_array_elements($5::text::jsonb) part, jsonb_array_elements(part -> 'waiting') w
), events as materialized (
    select e.seq, to_jsonb(e.*) as event
    from entering
    cross join lateral (
        select {own:columns} from {own:standing} where {own:seq} = entering.seq) e
), parts as materialized (
    select coalesce(jsonb_agg(part || jsonb_build_object('waiting', (
            select coalesce(jsonb_agg(w || jsonb_build_object('event', e.event) order by place), '[]')
            from jsonb_array_elements(part -> 'waiting') with ordinality as given (w, place)
            join events e on e.seq = (w ->> 'seq')::bigint
                and (e.event ->> 'id')::uuid = (w ->> 'id')::uuid))
        order by nr), '[]') as parts
    from jsonb_array_elements($5::text::jsonb) with ordinality as all_parts (part, nr)
), room as materialized (
    select {outbox_own_room}(part ->> 'destination', part -> 'waiting')
    from fenced, parts, jsonb_array_elements(parts.parts) part
), settled as materialized (
    select {outbox_settle}($1::smallint, $2::text, $3::bigint, null::uuid, $4::boolean, parts.parts,
        $13::bigint)
    from fenced, parts, (select count(*) from room) made
), found as materialized (
    -- The names of this statement are found already.
    select set_config('search_path', $14::text, true) from settled
), asked as materialized (
    select d.seq, d.id
    from unnest($6::bigint[], $7::uuid[]) as d (seq, id), found
    order by d.seq
), done as materialized (
    -- What somebody has locked holds back no other: it is asked for again. Row by row, by their numbers: a plan for all
    -- of them together that is made while the table is small reads all of it later as well.
    select asked.seq, asked.id
    from asked
    cross join lateral (
        select from {own:standing}
        where {own:seq} = asked.seq and {own:id} = asked.id and {own:pending}
        limit 1{own:lock}) held
), marked as (
{own:mark}
), unmarked as materialized (
    select asked.seq, asked.id,
        exists (select from done where done.seq = asked.seq and done.id = asked.id) as held
    from asked
    where not exists (select from marked m where m.seq = asked.seq and m.goes)
), unnumbered as (
    delete from {outbox_own_number} n using marked where n.seq = marked.seq and marked.goes
), unpassed as (
    -- Also where there was nothing to mark: whoever marked the row may take that back, and it is to be sent then.
    delete from {outbox_own_passed} p
    using {outbox_destination} d, asked
    where {own:unpass} and p.destination = d.id and p.seq = asked.seq and p.id = asked.id
), anew as (
    delete from {outbox_own_passed} p
    using {outbox_destination} d, unnest($12::bigint[]) as g (seq), settled
    where p.destination = d.id and p.seq = g.seq
), passed as (
    insert into {outbox_own_passed} as p (destination, seq, id, waits)
    select g.destination, g.seq, g.id, g.waits
    from unnest($8::text[], $9::bigint[], $10::uuid[], $11::boolean[]) as g (destination, seq, id, waits), settled
    where g.seq <> all ($12::bigint[])
        and exists (select from {outbox_destination} d where d.id = g.destination)
        and exists (
            select from {own:standing} where {own:seq} = g.seq and {own:id} = g.id and {own:pending})
    on conflict (destination, seq) do update set id = excluded.id, waits = excluded.waits where p.id <> excluded.id
), alive as (
    update {outbox_lease} l set takeovers = 0, cursors = '{}'
    where l.partition = $1::smallint and l.takeovers <> 0 and exists (select from marked)
)
-- The first row is there whether or not there is a row to mark: what waits is written all the same.
select null::bigint as seq, null::uuid as id, null::boolean as held from found
union all
select u.seq, u.id, u.held
from unmarked u
cross join lateral (
    select from {own:standing} where {own:seq} = u.seq and {own:id} = u.id and {own:pending} limit 1) still;
