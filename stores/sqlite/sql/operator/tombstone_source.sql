select source, event_type from inbox_tombstone where event_id = ?1 and handler = ?2
order by number desc limit 1;
