-- For an application's own table, whose rows say themselves that they are pending. Where it is not
-- served, these are empty.

-- Rows that a destination is done with though they are still marked as pending, because they were not
-- published: they stand in `waiting` (waits), or no route of the destination matches them. By the event's id as well: an
-- application that empties its table may give the numbers again. Goes with the destination, so that another one of its
-- name begins with everything that is pending.
create table {outbox_own_passed} (
    destination text not null references {outbox_destination} (id) on update cascade on delete cascade,
    seq bigint not null,
    id uuid not null,
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

-- Makes room in `waiting` for rows whose numbers other rows had before: what was discarded of those gives way. What waits
-- of them for a person does not, and the new ones cannot wait beside it.
create function {outbox_own_room}(p_destination text, p_new jsonb)
returns void language plpgsql set enable_seqscan = off as $$
declare
    g record;
    v_state text;
begin
    for g in select * from jsonb_to_recordset(p_new) n (seq bigint, id uuid)
    loop
        select w.state into v_state from {outbox_waiting} w
        where w.destination = p_destination and w.seq = g.seq and w.id is distinct from g.id;
        continue when not found;
        if v_state <> 'discarded' then
            raise exception using errcode = 'PRG01', message = format(
                'a row that cannot be delivered has the number %s, which another row had before, whose event still waits '
                'for destination %s; nothing was written. Redrive or discard that one: then this goes on', g.seq,
                p_destination);
        end if;
        delete from {outbox_waiting} w where w.destination = p_destination and w.seq = g.seq;
    end loop;
end
$$;
