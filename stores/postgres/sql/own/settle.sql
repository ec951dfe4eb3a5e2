-- A settlement: the waiting events and endpoints as everywhere, and the marks on the application's rows, in
-- one statement under the lease. $4 whether it must be on the disk  $5 the parts, as outbox_settle takes them
-- $6, $7 rows that are done, by number and id: a number may be another row's by now
-- $8, $9, $10 rows that are passed without being done: destination, number, whether it waits
-- $11 rows that neither destination's routes match: the first to be asked is asked again
-- $12 its number, where one that comes late must not undo what came after it
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
), settled as materialized (
    select {outbox_settle}($1::smallint, $2::text, $3::bigint, null::uuid, $4::boolean, parts.parts,
        $12::bigint)
    from fenced, parts
), done as materialized (
    select d.seq, d.id
    from unnest($6::bigint[], $7::uuid[]) as d (seq, id), settled
    order by d.seq
), marked as (
{own:mark}
), unnumbered as (
    delete from {outbox_own_number} n using marked where n.seq = marked.seq
), unpassed as (
    delete from {outbox_own_passed} p
    where ({own:unpass} and p.seq in (select seq from marked)) or p.seq = any ($11::bigint[])
), passed as (
    insert into {outbox_own_passed} (destination, seq, waits)
    select g.destination, g.seq, g.waits
    from unnest($8::text[], $9::bigint[], $10::boolean[]) as g (destination, seq, waits), settled
    where g.seq <> all ($11::bigint[])
        and exists (select from {outbox_destination} d where d.id = g.destination)
        and exists (select from {own:standing} where {own:seq} = g.seq and {own:pending})
    on conflict (destination, seq) do nothing
), alive as (
    update {outbox_lease} l set takeovers = 0, cursors = '{}'
    where l.partition = $1::smallint and l.takeovers <> 0 and exists (select from marked)
)
-- What waits is written whether or not there is a row to mark.
select count(*) from settled;
