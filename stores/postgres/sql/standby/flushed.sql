-- Whether the standby $1 has the log on its disk up to the position $2. No row: it is not connected. A null:
-- this user may not see it. With the token of the server's life.
select bool_or(flush_lsn >= $2::text::pg_lsn), (max(flush_lsn) is null),
    (select token from {outbox_life})
from pg_stat_replication
where application_name = $1::text
group by application_name;
