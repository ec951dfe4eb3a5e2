create table if not exists orders (id integer primary key, total_cents integer not null) strict;
