-- The table, newest first, from before a number on.
select number, at, who, why, what, subject from {outbox_audit}
where number < $1 order by number desc limit $2;
