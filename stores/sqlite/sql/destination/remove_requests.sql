-- What was asked for a destination that is gone is left undone: skipped, and counted as that.
update outbox_request
set skipped = skipped + open.rows,
    finished_at = case when done + skipped + open.rows >= total then ?2 end
from (
    select request, count(*) as rows from outbox_request_row indexed by outbox_request_row_open
    where partition in (select partition from outbox_cursor where destination = ?1)
        and destination = ?1 and outcome is null
    group by request) as open
where id = open.request;
