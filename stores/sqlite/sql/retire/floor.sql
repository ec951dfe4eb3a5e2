-- How far every destination has come; nothing where there is none.
select min(position) from outbox_cursor where partition = ?1;
