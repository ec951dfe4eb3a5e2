-- Whether a row is pending. $1 its number, $2 its id
select exists (select from {own:standing} where {own:seq} = $1::bigint and {own:id} = $2::uuid and {own:pending});
