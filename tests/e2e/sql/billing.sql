-- The effects of the transactional handler. No row is unique on purpose: a second effect must show.
create table if not exists charges (
    event_id text not null,
    key text not null
);
