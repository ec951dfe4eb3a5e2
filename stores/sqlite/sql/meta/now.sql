-- The database's clock, in milliseconds since 1970.
select cast(round((julianday('now') - 2440587.5) * 86400000) as integer);
