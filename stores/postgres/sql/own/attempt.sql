-- Marks one row, to be rolled back. $1 its number, $2 its id, $3 where the user's own sessions look for names
with found as materialized (
    select set_config('lock_timeout', '1s', true), set_config('search_path', $3::text, true)
), done as materialized (
    select $1::bigint as seq, $2::uuid as id from found
), marked as (
{own:mark}
)
select count(*) from marked;
