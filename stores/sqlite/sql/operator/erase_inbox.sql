-- The row stays: what was done must not be done again.
update inbox set result = null where source = ?1 and event_id = ?2 and result is not null;
