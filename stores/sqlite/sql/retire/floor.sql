-- How far every destination has come, and every range of one; nothing where there is none.
select min(position) from (
    select position from outbox_cursor where partition = ?1
    union all
    select position from outbox_range where partition = ?1);
