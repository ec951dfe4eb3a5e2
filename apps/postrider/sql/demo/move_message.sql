-- The first message of the first order placed goes to the end of the log.
update message set seq = (select max(seq) + 1 from message) where event_id = (
    select m.event_id from message m join topic t using (topic_id)
    where t.name = 'order.shipped' group by m.event_id having count(*) = 1 order by m.seq limit 1);
