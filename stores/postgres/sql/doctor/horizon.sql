-- For how long messages may come again, in seconds, and whether the inbox is used at all.
select (select extract(epoch from max(horizon))::bigint from {inbox_horizon}),
    exists (select from {inbox}),
    (select extract(epoch from clock_timestamp() - min(i.processed_at))::bigint from {inbox} i
        where i.status = 'processed');
