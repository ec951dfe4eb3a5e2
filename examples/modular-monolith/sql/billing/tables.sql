create table if not exists invoices (
    number integer primary key autoincrement,
    order_id integer not null unique,
    total_cents integer not null
) strict;
