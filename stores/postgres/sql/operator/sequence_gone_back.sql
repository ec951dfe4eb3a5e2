-- How many events some cursor would pass unread, at most.
select coalesce(sum(found.events), 0)::bigint
from (
    select array_agg(c.partition order by c.destination, c.partition) as partitions,
        array_agg(c.base_xmax order by c.destination, c.partition) as xmaxs,
        array_agg(c.floor order by c.destination, c.partition) as floors
    from {outbox_cursor} c
) as cursors
cross join lateral {outbox_gone_back}(cursors.partitions, cursors.xmaxs, cursors.floors) as found;
