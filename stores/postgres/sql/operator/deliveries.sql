-- What is known of events at each destination. An event without a transaction's number is only in `waiting`:
-- the outbox forgot it, so every cursor has passed it, and every range. Each table is asked for the one row, by
-- its key.
select e.n, c.destination,
    e.xid is null or {outbox_passed}(c, e.xid, e.seq),
    e.xid is not null and {outbox_predates}(c, e.xid, e.seq),
    w.state, w.attempts, w.reason, w.detail, w.next_at,
    s.count, s.acked, s.other_route, s.dropped, s.waiting, s.erased, s.saved_at,
    cardinality($4::bigint[]) > 0 and exists (
        select from {outbox_request_row} r
        where r.partition = e.partition and r.request = any ($4) and r.destination = c.destination
            and r.seq = e.seq and r.outcome is null),
    g.version
from unnest($1::bigint[], $2::bigint[], $3::smallint[], $5::bigint[])
    with ordinality as e (seq, xid, partition, key_hash, n)
join {outbox_cursor} c on c.partition = e.partition
left join lateral (
    select state, attempts, reason, detail, next_at from {outbox_waiting}
    where destination = c.destination and seq = e.seq limit 1
) w on true
left join lateral (
    select count::bigint, acked::bigint, other_route::bigint, dropped::bigint, waiting::bigint,
        erased::bigint, saved_at
    from {outbox_settled}
    where destination = c.destination and partition = c.partition and bucket = e.seq / 4096 limit 1
) s on true
left join lateral (
    select version from {outbox_range} r
    where destination = c.destination and partition = c.partition and key_hash = e.key_hash
        and not {outbox_range_passed}(r, e.xid, e.seq) limit 1
) g on true
order by e.n, c.destination;
