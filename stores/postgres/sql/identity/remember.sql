insert into {outbox_meta} (key, value)
select 'cluster', {outbox_cluster}()
union all
select 'database', oid::text from pg_database where datname = current_database()
on conflict (key) do update set value = excluded.value;
