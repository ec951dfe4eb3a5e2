SELECT claims FROM consumer_group WHERE group_id = ?1;
