-- The outbox as textbooks have it: a status column, and a partial index for what is left.
create table textbook (
    seq integer primary key autoincrement,
    id text not null unique,
    aggregate_type text not null,
    aggregate_id text not null,
    event_type text not null,
    payload text not null,
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    published_at text
) strict;
create index textbook_unpublished on textbook (seq) where published_at is null;
