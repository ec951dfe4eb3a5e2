select 1 from outbox_request_row where partition = ?1 and outcome is null limit 1;
