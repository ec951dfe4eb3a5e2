-- What a destination has passed of a bucket and does not wait there, each with its key, and the ranges that may stand
-- for it: the hashes of their keys, and the versions that they were passed by.
select o.seq, o.event_type, o.aggregate_type, o.tenant, o.erased_at is not null,
    coalesce(o.key, o.aggregate_type || '/' || o.aggregate_id), r.hashes, r.versions
from {outbox_cursor} c
join {outbox} o on o.partition = c.partition
cross join lateral (
    select coalesce(array_agg(r.key_hash), '{}') as hashes, coalesce(array_agg(r.version), '{}') as versions
    from {outbox_range} r
    where r.destination = c.destination and r.partition = c.partition
        and not {outbox_range_passed}(r, o.xid, o.seq)
) r
where c.destination = $1 and c.partition = $2 and o.seq between $3 * 4096 and $3 * 4096 + 4095
    and {outbox_covers}(c, o.xid, o.seq)
    and not exists (
        select from {outbox_waiting} w where w.destination = c.destination and w.seq = o.seq)
order by o.seq;
