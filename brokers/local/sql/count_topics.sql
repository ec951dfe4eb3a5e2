SELECT count(*) FROM topic;
