-- Triggers do not fire in this session: the rows are known to be right.
set session_replication_role = replica;
set synchronous_commit = off;
