create table if not exists orders (
    id integer primary key,
    total_cents integer not null,
    state text not null default 'placed' check (state in ('placed', 'cancelled'))
) strict;
