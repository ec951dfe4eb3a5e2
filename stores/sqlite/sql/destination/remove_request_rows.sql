-- The rows that destination/remove_requests.sql just counted, in the same transaction.
update outbox_request_row indexed by outbox_request_row_open set outcome = 'skipped'
where partition in (select partition from outbox_cursor where destination = ?1)
    and destination = ?1 and outcome is null;
