select c.destination, c.partition, c.base, c.position, c.base_xmax, c.floor, c.ground
from {outbox_cursor} c order by c.destination, c.partition;
