-- A destination with its cursors and endpoints. What was asked of it is left undone: skipped, and counted as
-- that. Its cursors are locked. What waited for it and its log have nobody any more, and go afterwards, in
-- writes of a bounded size: `destination/sweep`.
with skipped as (
    update {outbox_request_row} r set outcome = 'skipped'
    where r.destination = $1 and r.outcome is null
    returning r.request
), counted as (
    select s.request, count(*) as rows from skipped s group by s.request
), requests as (
    update {outbox_request} q
    set skipped = q.skipped + c.rows,
        finished_at = case when q.done + q.skipped + c.rows >= q.total then clock_timestamp() end
    from counted c where q.id = c.request
), cursors as (
    delete from {outbox_cursor} where destination = $1
), ranges as (
    delete from {outbox_range} where destination = $1
), endpoints as (
    delete from {outbox_endpoint} where destination = $1
)
delete from {outbox_destination} where id = $1;
