-- What an application has of its own, and the table of a baseline: one row, no index.
create table customers (id bigint primary key, balance bigint not null) with (fillfactor = 50);
create table orders (
    id bigint primary key generated always as identity,
    customer bigint not null,
    total bigint not null,
    placed_at timestamptz not null default now()
);
create table bare (aggregate_id text not null, payload text not null);
insert into customers (id, balance) select n, 0 from generate_series(1, 1000) as n;
