select event_id from charges order by number;
