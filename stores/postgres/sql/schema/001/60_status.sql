-- What became of each event at each destination. `published` is said only where the settled log knows that
-- everything its bucket passed was acknowledged; in a bucket where some events belonged elsewhere, were
-- dropped, or were erased, it says `settled`. What a range stands for is `parked`, although it has no row in
-- outbox_waiting; so is what no route took while the range was there, since only the program looks at the routes.
create view {outbox_status} as
select o.seq, o.id, o.event_type, c.destination,
    case
        when w.state in ('retrying', 'held') then 'waiting'
        when w.state is not null then w.state
        when not {outbox_passed}(c, o.xid, o.seq) then 'pending'
        when {outbox_predates}(c, o.xid, o.seq) then 'before_start'
        when exists (
            select from {outbox_range} r
            where r.destination = c.destination and r.partition = c.partition
                and not {outbox_range_passed}(r, o.xid, o.seq)
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
    case when {outbox_passed}(c, o.xid, o.seq) then s.saved_at end as settled_at
from {outbox} o
join {outbox_cursor} c on c.partition = o.partition
left join {outbox_waiting} w on w.destination = c.destination and w.seq = o.seq
left join {outbox_settled} s
    on s.destination = c.destination and s.partition = c.partition and s.bucket = o.seq / 4096;
