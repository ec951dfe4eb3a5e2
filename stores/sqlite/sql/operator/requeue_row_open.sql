select 1 from outbox_request_row
where request = ?1 and partition = ?2 and destination = ?3 and seq = ?4 and outcome is null;
