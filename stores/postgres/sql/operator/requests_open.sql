select id, verb, who, why, total, done, skipped, finished_at is not null, relay
from {outbox_request} where finished_at is null order by id limit $1;
