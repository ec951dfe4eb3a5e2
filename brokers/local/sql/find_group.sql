SELECT group_id FROM consumer_group WHERE name = ?1;
