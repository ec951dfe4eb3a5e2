select handler, (extract(epoch from horizon) * 1000000)::bigint from {inbox_horizon}
order by horizon desc, handler limit 1;
