-- Heads whose time has come, oldest due first. Of a key only the first that holds it is a head;
-- what does not hold its key (late on purpose) is a head of its own.
select w.seq, w.key, w.key_hash, w.holds_key
from outbox_waiting w
where w.destination = ?1 and w.partition = ?2 and w.state in ('retrying', 'held') and w.next_at <= ?3
    and (w.holds_key = 0 or not exists (
        select 1 from outbox_waiting earlier
        where earlier.destination = ?1 and earlier.partition = ?2 and earlier.key = w.key
            and earlier.holds_key = 1 and earlier.state <> 'discarded'
            and earlier.seq < w.seq))
order by w.next_at, w.seq;
