-- How many events the slowest destination that is not paused has yet to pass; null if all are paused.
-- Where there is no destination nobody has read anything.
select coalesce((select seq from sqlite_sequence where name = 'outbox'), 0)
    - case
        when exists (select 1 from outbox_destination) then (
            select min(c.position) from outbox_destination d
            join outbox_cursor c on c.destination = d.id
            where d.state = 'active')
        else 0
    end;
