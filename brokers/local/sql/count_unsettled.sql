-- Stops counting at the limit, so that it never costs more than that.
SELECT count(*) FROM (SELECT 1 FROM delivery WHERE group_id = ?1 LIMIT ?2);
