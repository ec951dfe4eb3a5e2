-- The shop's own tables. They know the events by themselves, so that the outbox can be judged by them.
create table if not exists orders (
    n integer primary key autoincrement,
    key text not null,
    event_id text not null
);
create table if not exists shipments (
    event_id text not null,
    shipped_id text not null
);
