-- The shop's own table. Each step of an order writes its event's id here, in the transaction that
-- enqueues the event: the shop's word on what was committed, apart from the outbox.
create table orders (
    id text primary key not null,
    customer integer not null,
    cents integer not null,
    placed text not null,
    paid text,
    shipped text
) strict, without rowid;
