-- Postrider's tables, version 7: ranges, which stand for what of a key is not copied into outbox_waiting.

-- One row for all of a key that lies between a number of its own and the destination's cursor, and that does not stand in
-- outbox_waiting. It keeps what it has not passed from being retired; whoever sets the destination's cursor back goes back to
-- before it, and deletes it. key: for people, the first that was met of its hash. version: of the definition by which
-- events of the key were passed.
create table outbox_range (
    destination text not null,
    partition integer not null,
    key_hash integer not null,
    key text not null,
    position integer not null check (position >= 0),
    version integer not null,
    opened_at integer not null,
    primary key (destination, partition, key_hash)
) strict, without rowid;

-- What a range stands for waits behind its key, although it has no row of its own.
drop view outbox_status;

create view outbox_status as
select o.seq, o.id, o.event_type, c.destination,
    case
        when w.state in ('retrying', 'held') then 'waiting'
        when w.state is not null then w.state
        when o.seq <= c.origin then 'before_start'
        when o.seq > c.position then 'pending'
        when exists (
            select 1 from outbox_range r
            where r.destination = c.destination and r.partition = c.partition
                and r.position < o.seq
                and r.key = coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id)) then 'parked'
        when s.count is null then 'settled'
        when s.other_route + s.dropped + s.erased = 0 then 'published'
        when s.other_route = s.count then 'elsewhere'
        when s.dropped = s.count then 'dropped'
        when s.erased = s.count then 'erased'
        else 'settled'
    end as status,
    coalesce(w.attempts, 0) as attempts,
    w.reason, w.detail, w.next_at,
    case when o.seq <= c.position then s.saved_at end as settled_at
from outbox o
join outbox_cursor c on c.partition = 0
left join outbox_waiting w on w.destination = c.destination and w.seq = o.seq
left join outbox_settled s
    on s.destination = c.destination and s.partition = c.partition and s.bucket = o.seq / 4096;

insert into outbox_meta (key, value) values ('schema_007_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
-- A program of before deletes what a range stands for, and leaves it out when it sends history again.
insert into outbox_meta (key, value) values ('serves', '7')
    on conflict (key) do update set value = excluded.value;
update outbox_meta set value = '7' where key = 'schema';
