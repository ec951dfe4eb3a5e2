select count(*) from {outbox_request} where finished_at is null;
