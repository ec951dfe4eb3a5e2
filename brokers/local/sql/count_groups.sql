SELECT count(*) FROM consumer_group;
