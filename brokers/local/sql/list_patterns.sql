SELECT group_id, pattern FROM group_pattern ORDER BY group_id;
