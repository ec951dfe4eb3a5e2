create table textbook (
    seq bigserial primary key,
    id uuid not null default gen_random_uuid(),
    aggregate_type text not null,
    aggregate_id text not null,
    event_type text not null,
    payload text not null,
    created_at timestamptz not null default now(),
    published_at timestamptz
);
create index textbook_pending on textbook (seq) where published_at is null;
