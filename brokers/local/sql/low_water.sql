-- Up to where the group has settled the topic: below its first unsettled message, of any topic.
SELECT min(COALESCE(c.passed, g.start_after),
           COALESCE((SELECT min(d.seq) - 1 FROM delivery d WHERE d.group_id = g.group_id),
                    9223372036854775807))
FROM consumer_group g
LEFT JOIN group_cursor c ON c.group_id = g.group_id AND c.topic_id = ?2
WHERE g.group_id = ?1;
