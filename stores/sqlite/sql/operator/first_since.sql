-- In a stretch of numbers, the first event created at or after a moment (milliseconds since 1970).
select seq from outbox
where seq between ?1 and ?2
    and cast(round((julianday(created_at) - 2440587.5) * 86400000) as integer) >= ?3
order by seq limit 1;
