-- The step stays as done, with nothing as its result.
update inbox_step set result = x'' where source = ?1 and event_id = ?2 and length(result) > 0;
