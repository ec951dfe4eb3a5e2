-- The greatest number there is.
select coalesce(max({own:seq}), 0) from {own:table} o;
