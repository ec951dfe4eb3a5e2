-- What an operator types who knows the table and not the tool.
delete from inbox where event_id = ?1;
