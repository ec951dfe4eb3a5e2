-- The first event of an order that was shipped goes to the end of the log, behind its successors.
update message set seq = (select max(seq) + 1 from message) where event_id = (
    select m.event_id from message m join topic t using (topic_id)
    where t.name = 'order.placed' and exists (
        select 1 from message n join topic u using (topic_id)
        where n.key = m.key and u.name = 'order.shipped')
    group by m.event_id having count(*) = 1 order by m.seq limit 1);
