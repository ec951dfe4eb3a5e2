-- The first event created at or after a moment (milliseconds since 1970).
select min(seq) from outbox
where cast(round((julianday(created_at) - 2440587.5) * 86400000) as integer) >= ?1;
