-- The last number ever given, also when its message is purged: where a group begins that wants
-- only what is new.
SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'message'), 0);
