insert into {inbox_horizon} (handler, horizon) values ($1, $2::bigint * interval '1 microsecond')
on conflict (handler) do update set horizon = excluded.horizon, recorded_at = excluded.recorded_at;
