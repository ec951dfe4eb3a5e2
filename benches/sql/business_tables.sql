-- What an application has of its own: a customer's balance, and the orders that change it.
create table customers (id integer primary key, balance integer not null) strict;
create table orders (
    id integer primary key,
    customer integer not null,
    total integer not null,
    placed_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;
with recursive n (id) as (select 1 union all select id + 1 from n where id < 1000)
insert into customers (id, balance) select id, 0 from n;
