UPDATE consumer_group SET claims = ?2 WHERE group_id = ?1;
