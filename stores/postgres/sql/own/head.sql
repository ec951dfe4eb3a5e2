-- The greatest number there is.
select coalesce(max({own:seq}), 0)::bigint from {own:table} o;
