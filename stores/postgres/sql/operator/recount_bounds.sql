-- Where the kept history begins, and the last bucket that log or cursors speak of.
select
    (select value::bigint from {outbox_meta} where key = 'history_start'),
    greatest(
        (select max(s.bucket) from {outbox_settled} s where s.destination = $1),
        (select max(greatest(c.floor, c.position)) / 4096 from {outbox_cursor} c
            where c.destination = $1));
