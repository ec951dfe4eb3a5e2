-- What waits though the cursor has not passed it. The row tells its number's transaction, if it is there.
select w.seq from {outbox_waiting} w
join {outbox_cursor} c on c.destination = w.destination and c.partition = w.partition
join {outbox} o on o.partition = w.partition and o.seq = w.seq
where w.destination = $1 and w.partition = $2 and w.seq > c.ground
    and not {outbox_passed}(c, o.xid, o.seq)
limit 1000000;
