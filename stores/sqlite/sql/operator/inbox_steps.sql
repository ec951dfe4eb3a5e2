select step from inbox_step where source = ?1 and event_id = ?2 and handler = ?3
order by step limit ?4;
