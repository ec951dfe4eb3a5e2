-- For how long messages may come again, in seconds; whether the inbox is used at all; and which of the handlers that
-- worked last have never said for how long: what they did stays for 35 days.
select (select extract(epoch from max(horizon))::bigint from {inbox_horizon}),
    exists (select from {inbox}),
    (select coalesce(array_agg(distinct i.handler order by i.handler), array[]::text[])
        from (select handler from {inbox} where processed_at is not null
            order by processed_at desc limit 1000) i
        where not exists (select from {inbox_horizon} h where h.handler = i.handler));
