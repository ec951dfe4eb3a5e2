-- Places, by their bytes and by their columns: of destinations, and of the keys that a range stands for.
select destination, partition, base, position, base_xmax, floor, ground, null as key
from {outbox_cursor}
union all
select destination, partition, base, position, base_xmax, floor, ground, key
from {outbox_range}
order by destination, partition, key nulls first;
