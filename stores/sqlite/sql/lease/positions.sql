-- All cursors of a partition, to see whether any moved since the last acquisition.
select destination, position from outbox_cursor where partition = ?1 order by destination;
