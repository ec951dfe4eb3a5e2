-- Open requests that may bring out what no cursor passes any more.
select id from {outbox_request} where finished_at is null and verb = 'requeue' order by id limit $1;
