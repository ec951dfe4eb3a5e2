-- For an application's own table, whose rows say themselves that they are pending. Where it is not
-- served, these are empty.

-- Rows that a destination is done with though they are still marked as pending, because they were not
-- published: they stand in `waiting` (waits), or no route of the destination matches them. Goes with the
-- destination, so that another one of its name begins with everything that is pending.
create table {outbox_own_passed} (
    destination text not null references {outbox_destination} (id) on update cascade on delete cascade,
    seq bigint not null,
    waits boolean not null,
    primary key (destination, seq)
);

-- The numbers of rows whose table has none: given when a row is read for the first time, and kept until
-- it is settled. That time is the event's, where the table has none either.
create table {outbox_own_number} (
    id text primary key,
    seq bigint not null unique,
    at timestamptz not null default clock_timestamp()
);
