SELECT count(*) FROM group_pattern WHERE group_id = ?1;
