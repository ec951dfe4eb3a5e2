-- A comparison begins with what is written after its first use.
insert into {outbox_meta} (key, value)
select 'own_compared_since', coalesce(max({own:seq}), 0)::text from {own:table} o
on conflict (key) do nothing;
