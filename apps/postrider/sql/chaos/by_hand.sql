-- The outbox and the inbox as they are often written by hand: a flag, and a list of what was seen.
create table if not exists by_hand_outbox (
    number integer primary key,
    order_id text not null,
    sent integer not null default 0
) strict;
create table if not exists by_hand_seen (event_id text primary key not null) strict, without rowid;
