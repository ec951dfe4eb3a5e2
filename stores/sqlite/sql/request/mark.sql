update outbox_request_row set outcome = ?5
where request = ?1 and partition = ?2 and destination = ?3 and seq = ?4;
