-- Whether every standby with the name $1 has the log on its disk up to the position $2: names need not be unique, and
-- each of them may become the primary. No row: none is connected. Whether this user may not see it. With the token of
-- the server's life.
select bool_and(coalesce(flush_lsn >= $2::text::pg_lsn, false)), bool_and(state is null),
    (select token from {outbox_life})
from pg_stat_replication
where application_name = $1::text
group by application_name;
