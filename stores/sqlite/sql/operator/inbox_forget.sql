delete from inbox where source = ?1 and event_id = ?2 and handler = ?3;
