delete from outbox_request
where id = ?1 and not exists (select 1 from outbox_request_row where request = ?1);
